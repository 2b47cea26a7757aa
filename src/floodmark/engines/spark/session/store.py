"""Settings by which Spark reaches buckets of S3: the variables of the environment, as every other library has them.

Secrets are in no setting, as settings are shown and recorded: Java reads them from its environment, and so do the Python workers.
"""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.lake.folder.bucket import endpoint_of

_PLAIN = (
    "AWS_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AWS_ALLOW_HTTP",
    "AWS_EC2_METADATA_DISABLED",
)
"""Variables without secrets."""
_FILES = "org.apache.hadoop.fs.s3a"


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings for the buckets of a store.

    Args:
        variables: of the environment.
    """
    chosen = {  # the scheme of the lake is s3, not Hadoop's s3a
        "fs.s3.impl": f"{_FILES}.S3AFileSystem",
        "fs.AbstractFileSystem.s3.impl": f"{_FILES}.S3A",
        # no looks, before each file is made or removed, whether a folder of its name is there, and whether the folder above stays
        "fs.s3a.performance.flags": "create,delete,mkdir",
    }
    if region := variables.get("AWS_REGION"):
        chosen["fs.s3a.endpoint.region"] = region
    if endpoint := endpoint_of(variables):
        chosen |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    return chosen


def of_executors(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables without secrets that executors on other hosts are given. Secrets are in the environment of workers, or come with their hosts' roles."""
    return {name: variables[name] for name in _PLAIN if variables.get(name)}
