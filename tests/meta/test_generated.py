"""Generated files are as `make generate` writes them."""

import pytest

from tools.generate import GENERATED, ROOT


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_as_make_generate_writes_it(name: str) -> None:
    text = (ROOT / name).read_text()
    assert GENERATED[name](text) == text, "run `make generate`"
