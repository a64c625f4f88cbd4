// BullMQ: 200 jobs at once, jobs added in bulk, finished jobs not kept, ioredis. The roles are those of program.py.
import { openSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(`${process.cwd()}/`); // run in the folder of its node_modules
const { Queue, Worker } = require('bullmq');

const connection = { host: '127.0.0.1', port: Number(process.env.BENCH_PORT), maxRetriesPerRequest: null };
const WARM = 10;
const options = { removeOnComplete: true, removeOnFail: true };
const [role, ...numbers] = process.argv.slice(2);
const [count, pauseMs] = numbers.map(Number);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function paced(queue) {
  const moments = [];
  for (let number = 0; number < count; number++) {
    await sleep(pauseMs);
    moments.push(Number(process.hrtime.bigint()));
    await queue.add('stamp', { number }, options);
  }
  return { submitted_ns: moments };
}

async function bulk(queue, jobs) {
  for (let start = 0; start < jobs; start += 1000) {
    const size = Math.min(1000, jobs - start);
    await queue.addBulk(Array.from({ length: size }, () => ({ name: 'noop', data: {}, opts: options })));
  }
}

async function enqueue() {
  const queue = new Queue('bench', { connection });
  for (let i = 0; i < WARM; i++) await queue.add('noop', {}, options);
  if (role === 'paced') return paced(queue);
  const jobs = count - WARM;
  const started = process.hrtime.bigint();
  if (role === 'bulk') await bulk(queue, jobs);
  else for (let i = 0; i < jobs; i++) await queue.add('noop', {}, options);
  return { seconds: Number(process.hrtime.bigint() - started) / 1e9, jobs };
}

if (role === 'work') {
  const pipe = openSync(process.env.BENCH_FIFO, 'w');
  const run = async (job) => {
    if (job.name === 'noop') writeSync(pipe, '.');
    else writeSync(pipe, `${job.data.number} ${process.hrtime.bigint()}\n`);
  };
  new Worker('bench', run, { connection, concurrency: 200 });
} else {
  console.log(JSON.stringify(await enqueue()));
  process.exit(0);
}
