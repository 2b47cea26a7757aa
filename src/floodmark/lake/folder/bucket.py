"""Buckets: files of an object store by URI, through obstore. Files appear whole, and a file is created by one writer only.

A request may fail after the store has done its work: a response is lost, or a proxy answers in the store's place. ``create`` then compares the stored
content with its own, so callers put an id of their own into the content.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, TypeVar

from floodmark.core.errors import ConnectorError
from floodmark.core.patience import waits
from floodmark.lake.folder.credentials import refreshed

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Item = TypeVar("Item")
Result = TypeVar("Result")

SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az", "wasb", "wasbs")
"""URI schemes of object stores."""
MARK = "_floodmark/store.json"
"""A file of every lake in a bucket, which says that the store was checked."""
_S3 = ("s3", "s3a", "s3n")
_TRIES = 8
"""Attempts of a request whose answer says neither yes nor no."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0
_TOGETHER = 8
"""Files that are sent or fetched at the same time."""
_REQUEST_SECONDS = 30
FRONT = 8 << 20
"""Bytes that ``front`` reads: files up to this size are read by one request."""
_LONGEST_WAIT_SECONDS = 15.0
"""Between two looks whether credentials were renewed."""
_CODE = re.compile(r"<Code>(\w+)</Code>")
"""The store's name of a refusal, in its answer."""
_UNKNOWN = ("NotImplemented", "501", "not supported", "not implemented")
"""Words of a store that does not know conditional puts."""
_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_")


class StoreError(OSError):
    """A store that refuses or does not answer; ``errno`` is None."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A file of a bucket.

    Args:
        path: key of the file in its bucket.
        size: bytes.
        modified: date of the last write, ms UTC.
        tag: ETag of the content.
    """

    path: str
    size: int
    modified: int
    tag: str


def is_bucket(location: str) -> bool:
    """True for a URI of an object store."""
    return location.partition("://")[0] in SCHEMES and "://" in location


def is_s3(location: str) -> bool:
    """True for a URI of S3, or of a store that speaks its protocol."""
    return is_bucket(location) and split(location)[0] == "s3"


def split(location: str) -> tuple[str, str, str]:
    """URI -> (scheme, bucket, key). The schemes of S3 count as one."""
    scheme, _, path = location.partition("://")
    bucket, _, key = path.partition("/")
    return "s3" if scheme in _S3 else scheme, bucket, key.strip("/")


def read(location: str) -> bytes | None:
    """The content of a file; None if it does not exist."""
    import obstore  # noqa: PLC0415 - only lakes in buckets need it

    try:
        return _asked(location, lambda store, key: bytes(obstore.get(store, key).bytes()))
    except FileNotFoundError:
        return None


def read_range(location: str, start: int, length: int) -> bytes:
    """Some bytes of a file; fewer than ``length`` at its end.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    import obstore  # noqa: PLC0415 - as above

    return _asked(location, lambda store, key: bytes(obstore.get_range(store, key, start=start, length=length)))


def stat(location: str) -> Stat | None:
    """Size and date of a file; None if it does not exist."""
    import obstore  # noqa: PLC0415 - as above

    try:
        return _stat(_asked(location, obstore.head))
    except FileNotFoundError:
        return None


def front(location: str) -> tuple[bytes, int]:
    """(the first bytes of a file, at most ``FRONT``, its size), by one request.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    import obstore  # noqa: PLC0415 - as above
    from obstore.exceptions import BaseError  # noqa: PLC0415 - as above

    def ask(store: ObjectStore, key: str) -> tuple[bytes, int]:
        try:
            answer = obstore.get(store, key, options={"range": (0, FRONT)})
        except BaseError as error:
            if "InvalidRange" in str(error):  # an empty file has no first byte
                return b"", 0
            raise
        return bytes(answer.bytes()), int(answer.meta["size"])

    return _asked(location, ask)


def holds(location: str) -> bool:
    """True if there is a file below a folder."""
    import obstore  # noqa: PLC0415 - as above

    return _asked(location, lambda store, key: any(obstore.list(store, f"{key}/" if key else None, chunk_size=1)))


def write(location: str, content: bytes | Path) -> None:
    """Create or replace a file. Readers see the old content or the new."""
    import obstore  # noqa: PLC0415 - as above

    _asked(location, lambda store, key: obstore.put(store, key, content))


def write_stream(location: str, content: IO[bytes]) -> None:
    """``write`` for a seekable file of this process."""
    import obstore  # noqa: PLC0415 - as above

    def attempt(store: ObjectStore, key: str) -> None:
        content.seek(0)
        obstore.put(store, key, content)

    _asked(location, attempt)


def create(location: str, content: bytes) -> bool:
    """Create a file unless it exists, by a conditional put.

    Args:
        location: URI of the file.
        content: bytes that no other writer would write, such as bytes with a random id.

    Returns:
        True if the file has this content; False if another writer has created the file.
    """
    import obstore  # noqa: PLC0415 - as above
    from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - as above

    def attempt(store: ObjectStore, key: str) -> bool:
        try:
            obstore.put(store, key, content, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            there = read(location)
            if there is None:  # answered while another request was at work, which then failed
                raise
            return there == content
        return True

    return _asked(location, attempt, again=(AlreadyExistsError, PreconditionError))


def swap(location: str, content: bytes, tag: str | None) -> bool:
    """Replace a file whose ETag is known, or create a file that does not exist (``tag`` None), by a conditional put.

    Returns:
        True if the file has this content; False if another writer has written the file since.
    """
    if tag is None:
        return create(location, content)
    import obstore  # noqa: PLC0415 - as above
    from obstore.exceptions import NotFoundError, PreconditionError  # noqa: PLC0415 - as above

    def attempt(store: ObjectStore, key: str) -> bool:
        try:
            obstore.put(store, key, content, mode={"e_tag": tag}, use_multipart=False)
        except (PreconditionError, NotFoundError):  # S3 answers 404 for a key that is gone
            return read(location) == content
        return True

    return _asked(location, attempt)


def tagged(location: str) -> tuple[bytes, str] | None:
    """(content, ETag) of a file; None if it does not exist."""
    import obstore  # noqa: PLC0415 - as above

    def ask(store: ObjectStore, key: str) -> tuple[bytes, str]:
        answer = obstore.get(store, key)
        return bytes(answer.bytes()), str(answer.meta["e_tag"])

    try:
        return _asked(location, ask)
    except FileNotFoundError:
        return None


def remove(locations: Iterable[str]) -> None:
    """Remove files; those that do not exist are skipped."""
    import obstore  # noqa: PLC0415 - as above

    for location in locations:
        try:
            _asked(location, obstore.delete)
        except FileNotFoundError:
            continue


def copy(source: str, target: str) -> None:
    """Copy a file; within one bucket the store copies it.

    Raises:
        FileNotFoundError: the source does not exist.
    """
    import obstore  # noqa: PLC0415 - as above

    (*origin, _), (*goal, to) = split(source), split(target)
    if origin == goal:
        _asked(source, lambda store, key: obstore.copy(store, key, to, overwrite=True))
        return
    content = read(source)
    if content is None:
        raise FileNotFoundError(source)
    write(target, content)


def below(location: str) -> Iterator[Stat]:
    """All files below a folder."""
    import obstore  # noqa: PLC0415 - as above

    listed = _asked(location, lambda store, key: list(itertools.chain.from_iterable(obstore.list(store, f"{key}/"))))
    return _but_folders(location, list(map(_stat, listed)))


def _but_folders(location: str, stats: list[Stat]) -> Iterator[Stat]:
    """What is listed, without the empty objects that Hadoop puts for folders.

    Their names end with a slash and are listed without it, so an empty one that is no folder of a listed file is asked for by its name.
    """
    folders = {split(location)[2]}
    if any(not stat.size for stat in stats):
        folders |= {str(parent) for stat in stats for parent in PurePosixPath(stat.path).parents}
    return (stat for stat in stats if stat.size or (stat.path not in folders and _is_file(location, stat.path)))


def _is_file(location: str, key: str) -> bool:
    """Whether a bucket has an object of this very name."""
    import obstore  # noqa: PLC0415 - as above

    try:
        _asked(location, lambda store, _: obstore.head(store, key))
    except FileNotFoundError:
        return False
    return True


def beside(location: str) -> tuple[list[Stat], list[str]]:
    """(files, names of the subfolders) of a folder."""
    import obstore  # noqa: PLC0415 - as above

    listed = _asked(location, lambda store, key: obstore.list_with_delimiter(store, f"{key}/" if key else None))
    folders = [str(prefix).rstrip("/").rsplit("/", 1)[-1] for prefix in listed["common_prefixes"]]
    return list(_but_folders(location, list(map(_stat, listed["objects"])))), folders


def together(ask: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The answers for items in order, several asked at a time."""
    with ThreadPoolExecutor(_TOGETHER) as threads:
        asked = [threads.submit(copy_context().run, ask, item) for item in items]
        return [answer.result() for answer in asked]


def send(files: Iterable[tuple[Path, str]]) -> None:
    """Upload local files, several at a time.

    Args:
        files: (local file, URI).
    """
    pairs = list(files)
    if len(pairs) == 1:
        write(pairs[0][1], pairs[0][0].read_bytes())
        return
    together(lambda pair: write(pair[1], pair[0]), pairs)


def fetch(files: Iterable[tuple[str, Path]]) -> None:
    """Download files, several at a time.

    Args:
        files: (URI, local file).

    Raises:
        FileNotFoundError: a file does not exist.
    """

    def fetch_one(pair: tuple[str, Path]) -> None:
        location, file = pair
        content = read(location)
        if content is None:
            raise FileNotFoundError(location)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    together(fetch_one, files)


def check_store(root: str) -> None:
    """Check once for a lake that its store creates a file only if it does not exist; the lake then has a file that says so.

    Args:
        root: root of the lake.

    Raises:
        ConnectorError: CONNECTOR-216, the store ignores or refuses the condition.
    """
    checked = f"{root}/{MARK}"
    if read(checked) is not None:
        return
    probe, own, other = f"{root}/_floodmark/probe-{uuid.uuid4().hex}", uuid.uuid4().bytes, uuid.uuid4().bytes
    try:
        conditional = create(probe, own) and not create(probe, other) and read(probe) == own
        got = "one that replaces a file although the request forbids it"
    except StoreError as error:
        if not any(word in str(error) for word in _UNKNOWN):
            raise
        conditional, got = False, f"one that refuses the condition: {error}"
    remove([probe])
    if not conditional:
        fix = (
            "Keep the lake in a store with conditional writes (If-None-Match: *), such as Amazon S3, MinIO, Ceph or R2, or on a disk. Nothing was written: "
            "without them two writers of one table lose commits."
        )
        raise ConnectorError(f"lake {root}", "a store with conditional writes", got, fix, code="CONNECTOR-216")
    write(checked, json.dumps({"conditional": True}).encode())


def _stat(meta: Any) -> Stat:
    modified = int(meta["last_modified"].timestamp() * 1000)
    return Stat(str(meta["path"]), int(meta["size"]), modified, str(meta["e_tag"] or ""))


def _asked(location: str, ask: Callable[[ObjectStore, str], Result], again: tuple[type[Exception], ...] = ()) -> Result:
    """The answer of a store. A request without a clear answer is repeated after a pause.

    Args:
        location: URI, for errors.
        ask: (store, key) -> the answer to the request; safe to repeat.
        again: further exceptions that are no answer.

    Raises:
        FileNotFoundError: there is no such file.
        PermissionError: the store refuses the credentials.
        StoreError: any other refusal, or no answer.
    """
    from obstore import exceptions  # noqa: PLC0415 - only lakes in buckets need it

    unclear: tuple[type[Exception], ...] = (exceptions.GenericError, *again)
    pause = _FIRST_PAUSE_SECONDS
    left = _TRIES
    while True:
        store, key = _opened(location)
        try:
            return ask(store, key)
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error):
                message = f"{location}: {_short(error)}"
                raise StoreError(message) from error
            raise FileNotFoundError(location) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            message = f"{location}: {_short(error)}"
            if not refreshed() and not waits(message, pause):
                raise PermissionError(message) from error
            pause = min(pause * 2, _LONGEST_WAIT_SECONDS)
            continue
        except unclear as error:
            left -= 1
            if not left:
                message = f"{location}: {_short(error)}"
                raise StoreError(message) from error
        except exceptions.BaseError as error:
            message = f"{location}: {_short(error)}"
            raise StoreError(message) from error
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def attempts() -> Iterator[bool]:
    """Whether a further attempt is left, for each attempt of a request without a clear answer; with a growing pause before each but the first."""
    pause = _FIRST_PAUSE_SECONDS
    for left in reversed(range(_TRIES)):
        yield bool(left)
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _short(error: Exception) -> str:
    """The store's own word for a refusal, such as ``NoSuchBucket``; else the first line of an error, whose further lines show the client's internals."""
    code = _CODE.search(str(error))
    return code[1] if code else str(error).partition("\n")[0]


def _opened(location: str) -> tuple[ObjectStore, str]:
    """(store, key) of a URI."""
    scheme, bucket, key = split(location)
    return _store(scheme, bucket, store_variables()), key


def endpoint_of(variables: Mapping[str, str]) -> str | None:
    """The URL of a store of S3's protocol that is not Amazon's, from the variables of the environment; None for Amazon's."""
    return variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL") or variables.get("AWS_ENDPOINT")


def store_variables() -> tuple[tuple[str, str], ...]:
    """The variables of the environment that a store is reached with, such as its credentials: a client of it that has others is replaced."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES)))


@lru_cache(maxsize=16)
def _store(scheme: str, bucket: str, environment: tuple[tuple[str, str], ...]) -> ObjectStore:
    """The client of a bucket, with the credentials and the endpoint of the environment."""
    from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415 - only lakes in buckets need it

    variables = dict(environment)
    plain = variables.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true"}
    client: Any = {"timeout": timedelta(seconds=_REQUEST_SECONDS), "allow_http": plain}
    retry: Any = {"max_retries": 0}  # ``_asked`` repeats requests: it looks first whether one took effect
    if scheme == "s3":
        endpoint = endpoint_of(variables)
        config: Any = {"conditional_put": "etag"}
        if endpoint:
            config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
        return S3Store(bucket, config=config, client_options=client, retry_config=retry)
    if scheme in {"gs", "gcs"}:
        return GCSStore(bucket, client_options=client, retry_config=retry)
    container, _, account = bucket.partition("@")
    if account:
        return AzureStore(container, account_name=account.split(".")[0], client_options=client, retry_config=retry)
    return AzureStore(container, client_options=client, retry_config=retry)
