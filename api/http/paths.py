"""Path parameters shared by several routes. An id of another form is that of no thing: 404."""

from typing import Annotated

from pydantic import AfterValidator

from workron import ids
from workron.errors import NotFound


def _id_of(kind: str) -> AfterValidator:
    def check(text: str) -> str:
        if not ids.is_id(text):
            raise NotFound(kind, text)
        return text

    return AfterValidator(check)


JobId = Annotated[str, _id_of("job")]
WorkflowId = Annotated[str, _id_of("workflow")]
ActionId = Annotated[str, _id_of("action")]
KeyId = Annotated[str, _id_of("key")]
