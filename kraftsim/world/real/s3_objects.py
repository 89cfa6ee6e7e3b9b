"""Objects in a bucket of an S3-compatible service, through boto3: called in worker threads only.

Settings, with the prefix `rsm.config.`: `s3.endpoint.url`, `s3.region`, `s3.access.key.id`,
`s3.secret.access.key`, `s3.path.style.access` (true or false), `s3.prefix`. Missing settings are
boto3's defaults: from the environment, or from its own files.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from kraftsim.world.interface import Chunk, FileSlice
from kraftsim.world.real.objects import PieceReader

GONE: Final = ("NoSuchKey", "404", "NoSuchBucket", "NotFound")
BEHIND_THE_END: Final = ("InvalidRange", "416")
PART_BYTES: Final = 8 << 20
RETRIES_MAX: Final = 3


class S3Objects:
    """One bucket, below a prefix."""

    def __init__(self, bucket: str, settings: Mapping[str, str]) -> None:
        self._bucket = bucket
        self._prefix = settings.get("s3.prefix", "")
        style = "path" if settings.get("s3.path.style.access", "false") == "true" else "auto"
        self._client = boto3.client(
            "s3",
            endpoint_url=settings.get("s3.endpoint.url"),
            region_name=settings.get("s3.region", "us-east-1"),
            aws_access_key_id=settings.get("s3.access.key.id"),
            aws_secret_access_key=settings.get("s3.secret.access.key"),
            config=Config(
                s3={"addressing_style": style},
                retries={"max_attempts": RETRIES_MAX, "mode": "standard"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        self._transfer = TransferConfig(
            multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, use_threads=False
        )

    def put(self, key: str, pieces: Sequence[Chunk | FileSlice]) -> None:
        """Write an object; a long one is uploaded in parts, and not visible before it is
        complete.
        """
        try:
            self._client.upload_fileobj(
                PieceReader(pieces), self._bucket, self._prefix + key, Config=self._transfer
            )
        except (ClientError, BotoCoreError, *_transfer_errors()) as failure:
            raise OSError(f"{key} could not be written: {failure}") from failure

    def get(self, key: str, first: int, size_bytes: int | None) -> bytes:
        """Return a part of an object."""
        if size_bytes == 0:
            return b""
        last = "" if size_bytes is None else str(first + size_bytes - 1)
        request = {"Range": f"bytes={first}-{last}"} if first or last else {}
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, **request)
            return cast(bytes, answer["Body"].read())
        except ClientError as failure:
            code = str(failure.response.get("Error", {}).get("Code", ""))
            if code in BEHIND_THE_END:
                return b""
            if code in GONE:
                raise FileNotFoundError(f"{key} does not exist") from failure
            raise OSError(f"{key} could not be read: {failure}") from failure
        except BotoCoreError as failure:
            raise OSError(f"{key} could not be read: {failure}") from failure

    def delete(self, key: str) -> None:
        """Delete an object."""
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)
        except (ClientError, BotoCoreError) as failure:
            raise OSError(f"{key} could not be deleted: {failure}") from failure

    def list(self, prefix: str) -> list[str]:
        """Return the keys with a prefix."""
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            return sorted(
                str(each["Key"]).removeprefix(self._prefix)
                for page in pages
                for each in page.get("Contents", ())
            )
        except (ClientError, BotoCoreError) as failure:
            raise OSError(f"{prefix} could not be listed: {failure}") from failure


def _transfer_errors() -> tuple[type[Exception], ...]:
    from boto3.exceptions import Boto3Error

    return (Boto3Error,)
