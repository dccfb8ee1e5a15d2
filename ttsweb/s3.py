"""Keep objects in a bucket of an S3-compatible server, with the meaning of those in a folder.

An object is there whole or not at all, and none is ever replaced: it is put with
`If-None-Match: *`. A missing object is a FileNotFoundError; whatever else goes wrong is a
StorageAwayError, an outage that work waits for.
"""

from __future__ import annotations

import datetime as dt
import errno
import io
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import IO, Any, NoReturn, cast

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from django.core.files.base import File
from django.core.files.storage import Storage

from ttsweb.storage import StorageAwayError

CONNECT_SECONDS, READ_SECONDS = 5, 30
TRIES = 2  # of a request; work that waits tries again by itself
CONNECTIONS = 32  # that a process keeps: its threads store and read side by side
PART_BYTES = 64 << 20  # larger objects go in such parts; S3 takes 5 GB at once
BUFFER_BYTES = 128 << 10
SIGNED_SECONDS = 15 * 60
_MISSING = {"404", "NoSuchKey", "NotFound"}
_DENIED = {
    "403", "AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch",
    "ExpiredToken", "InvalidToken", "AllAccessDisabled", "AuthorizationHeaderMalformed",
}  # fmt: skip
_FULL = {"XMinioStorageFull", "QuotaExceeded", "InsufficientStorage", "507"}
_OTHERS_WRITE = {"409", "ConditionalRequestConflict"}
_UNCONDITIONAL = (
    "The S3 server does not keep `If-None-Match: *` on PUT, so that one writer could replace what "
    "another has stored; update the server, or use one that has conditional writes."
)


class S3Storage(Storage):
    """Objects of one bucket whose names begin with a prefix."""

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        signed_urls: bool = False,
    ) -> None:
        """Look at nothing yet; credentials are found as boto3 finds them.

        Args:
            prefix: begins every name, with a slash at its end where there is one.
            endpoint: address of a server other than AWS.
            signed_urls: finished files may be fetched from the server itself.
        """
        self.bucket, self.prefix, self.endpoint, self.region = bucket, prefix, endpoint, region
        self.signs_urls = signed_urls
        self.location = f"s3://{bucket}/{prefix}" + (f" at {endpoint}" if endpoint else "")
        self._is_conditional = False
        self._lock = threading.Lock()

    @cached_property
    def _client(self) -> Any:
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": TRIES},
            max_pool_connections=CONNECTIONS,
            signature_version="s3v4",
            s3={"addressing_style": "path" if self.endpoint else "auto"},
            # Other servers than AWS may not know the newer sums. The signature has the content's.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._lock, _told():  # boto3's making of clients is not for several threads
            session = boto3.session.Session()
            region = self.region or session.region_name or "us-east-1"
            return session.client(
                "s3", endpoint_url=self.endpoint, region_name=region, config=config
            )

    def _ask(self, operation: str, name: str | None = None, **more: Any) -> dict[str, Any]:
        """Send a request about an object, or about the bucket."""
        if name is not None:
            more["Key"] = self.prefix + name
        with _told():
            try:
                found: dict[str, Any] = getattr(self._client, operation)(Bucket=self.bucket, **more)
            except ClientError as error:
                if _code(error) not in _MISSING or name is None:
                    raise
                if operation == "head_object":  # 404 of a bucket and of an object are the same here
                    self._client.head_bucket(Bucket=self.bucket)
                raise FileNotFoundError(errno.ENOENT, "there is no such object", name) from error
        return found

    # What Django asks for.

    def _open(self, name: str, mode: str = "rb") -> File[bytes]:
        return self.open_range(name, 0, None)

    def open_range(self, name: str, start: int, end: int | None) -> File[bytes]:
        """Open an object to read it from `start` on, and up to `end` where that is known.

        Raises:
            FileNotFoundError, StorageAwayError.
        """
        raw = _Reader(self, name, start, end)
        return File(io.BufferedReader(raw, BUFFER_BYTES), name)

    def _save(self, name: str, content: File[bytes]) -> str:
        """Put an object; where another writer has the name, under another one.

        Raises:
            StorageAwayError: nothing is there.
        """
        self.check_conditional()
        while not self._put(name, cast(IO[bytes], content.file)):
            name = super().get_available_name(name)
        return name

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        """Return the name as it is: whether it is taken the write finds out, with no more asked."""
        return name

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._ask("delete_object", name)

    def exists(self, name: str) -> bool:
        try:
            self._ask("head_object", name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        return int(self._ask("head_object", name)["ContentLength"])

    def get_modified_time(self, name: str) -> dt.datetime:
        modified: dt.datetime = self._ask("head_object", name)["LastModified"]
        return modified

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the objects in a folder."""
        prefix = f"{path.rstrip('/')}/" if path else ""
        folders, files = [], []
        for page in self._pages(prefix, Delimiter="/"):
            folders += [one["Prefix"] for one in page.get("CommonPrefixes", ())]
            files += [one["Key"] for one in page.get("Contents", ())]
        skip = len(self.prefix + prefix)
        return [one[skip:-1] for one in folders], [one[skip:] for one in files if one[skip:]]

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Yield the names of all objects that begin with a prefix, a thousand with one request."""
        for page in self._pages(prefix):
            for one in page.get("Contents", ()):
                yield one["Key"][len(self.prefix) :]

    def signed_url(self, name: str, *, content_type: str, disposition: str) -> str:
        """Return a URL that anybody may GET for some minutes, with these headers of the answer."""
        wanted = {
            "Bucket": self.bucket,
            "Key": self.prefix + name,
            "ResponseContentType": content_type,
            "ResponseContentDisposition": disposition,
            "ResponseCacheControl": "private, no-store",
        }
        with _told():
            signed: str = self._client.generate_presigned_url(
                "get_object", Params=wanted, ExpiresIn=SIGNED_SECONDS
            )
        return signed

    # How objects are put.

    def check_conditional(self) -> None:
        """Find out, once in a process, that the server never replaces an object.

        Raises:
            StorageAwayError: it does, or it cannot be asked.
        """
        if self._is_conditional:
            return
        name = f"health/{uuid.uuid4().hex}"
        self._put(name, io.BytesIO(b"first"))
        try:
            if self._put(name, io.BytesIO(b"second")):
                raise StorageAwayError(_UNCONDITIONAL)
        finally:
            self.delete(name)
        self._is_conditional = True

    def _put(self, name: str, content: IO[bytes]) -> bool:
        """Put an object, and return whether the name was free.

        A put whose answer was lost is sent again and finds the name taken: by its own mark.
        """
        mark = uuid.uuid4().hex
        content.seek(0)
        try:
            first = content.read(PART_BYTES)
            if len(first) < PART_BYTES:
                self._put_whole(name, first, mark)
            else:
                self._put_parts(name, first, content, mark)
        except FileExistsError:
            with suppress(FileNotFoundError):
                return bool(self._ask("head_object", name)["Metadata"].get("mark") == mark)
            return False
        return True

    def _put_whole(self, name: str, content: bytes, mark: str) -> None:
        self._ask(
            "put_object", name, Body=content, IfNoneMatch="*", Metadata={"mark": mark},
            ContentType="application/octet-stream",
        )  # fmt: skip

    def _put_parts(self, name: str, part: bytes, content: IO[bytes], mark: str) -> None:
        """Put a large object in parts, of which nothing is seen before the last request."""
        begun = self._ask(
            "create_multipart_upload", name, Metadata={"mark": mark},
            ContentType="application/octet-stream",
        )  # fmt: skip
        upload = {"UploadId": begun["UploadId"]}
        parts: list[dict[str, Any]] = []
        try:
            while part:
                number = len(parts) + 1
                sent = self._ask("upload_part", name, PartNumber=number, Body=part, **upload)
                parts.append({"PartNumber": number, "ETag": sent["ETag"]})
                part = content.read(PART_BYTES)
            wanted = {"Parts": parts}
            self._ask(
                "complete_multipart_upload", name, MultipartUpload=wanted, IfNoneMatch="*", **upload
            )
        except BaseException:
            with suppress(OSError):  # what is left the bucket's own rule removes
                self._ask("abort_multipart_upload", name, **upload)
            raise

    def _pages(self, prefix: str, **more: Any) -> Iterator[dict[str, Any]]:
        token: dict[str, str] = {}
        while True:
            page = self._ask("list_objects_v2", Prefix=self.prefix + prefix, **more, **token)
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}


class _Reader(io.RawIOBase):
    """Read a range of an object as it comes; one that breaks off is asked for again from there."""

    def __init__(self, storage: S3Storage, name: str, start: int, end: int | None) -> None:
        super().__init__()
        self._storage, self._name, self._end = storage, name, end
        self._size: int | None = None  # of the whole object
        self._body: Any = None
        self._position = self._body_position = start
        self._ask()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size or 0}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        for tries_left in range(TRIES, -1, -1):
            if self._position >= self._stop:
                return 0
            try:
                with _told():
                    if self._body is None or self._body_position != self._position:
                        self._ask()
                    part = self._body.read(min(len(view), self._stop - self._position))
                if not part:
                    raise StorageAwayError("The S3 server sent less than it said.")
            except StorageAwayError:
                self._drop_body()
                if not tries_left:
                    raise
                continue
            view[: len(part)] = part
            self._position += len(part)
            self._body_position = self._position
            return len(part)
        return 0

    def close(self) -> None:
        self._drop_body()
        super().close()

    @property
    def _stop(self) -> int:
        """Return the place behind the last byte that is to be read."""
        size = self._size or 0
        return size if self._end is None else min(self._end, size)

    def _ask(self) -> None:
        self._drop_body()
        if self._end is not None and self._end <= self._position:  # a range cannot be empty
            self._size = self._storage.size(self._name)
            return
        last = "" if self._end is None else str(self._end - 1)
        wanted = {"Range": f"bytes={self._position}-{last}"} if self._position or last else {}
        answer = self._storage._ask("get_object", self._name, **wanted)
        self._body, self._body_position = answer["Body"], self._position
        total = str(answer.get("ContentRange", "")).rpartition("/")[2]
        self._size = int(total) if total.isdecimal() else int(answer["ContentLength"])

    def _drop_body(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None


@contextmanager
def _told() -> Iterator[None]:
    """Turn boto3's errors into one that says what a person can do; it has no address in it."""
    try:
        yield
    except ClientError as error:
        _tell(error)
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StorageAwayError(
            "No credentials for the S3 storage: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        ) from error
    except BotoCoreError as error:
        name = type(error).__name__.removesuffix("Error")
        raise StorageAwayError(f"The S3 storage does not answer ({name}).") from error


def _tell(error: ClientError) -> NoReturn:
    code = _code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in ("412", "PreconditionFailed"):
        raise FileExistsError(errno.EEXIST, "another writer has stored this object") from error
    if code in ("501", "NotImplemented"):
        raise StorageAwayError(_UNCONDITIONAL) from error
    if code in _FULL or status == 507:
        raise StorageAwayError("The S3 storage is full.", errno.ENOSPC) from error
    if code == "NoSuchBucket" or code in _MISSING:
        text = "The bucket that TTS_STORAGE names does not exist; make it, or correct the name."
    elif code in _DENIED:
        text = f"The S3 storage refuses access ({code}); check the credentials and their rights."
    elif status in (301, 307, 400) and "region" in str(error).lower():
        text = f"The bucket is in another region ({code}); give its `region` in TTS_STORAGE."
    elif code in _OTHERS_WRITE:
        text = "Another writer is storing the same object in this moment."
    else:
        said = dict.fromkeys(str(one) for one in (status, code) if one)  # some say the status alone
        text = f"The S3 storage answered {' '.join(said)}."
    raise StorageAwayError(text) from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
