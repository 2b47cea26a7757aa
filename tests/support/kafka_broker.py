"""A Kafka broker of one node (KRaft) on loopback, in a process of its own; its data survives a kill."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from java_flags import LEAN
from ports import free_port

from floodmark.engines.spark.setup import jars
from floodmark.engines.spark.setup.home import spark_home
from floodmark.engines.spark.setup.java import find_java

VERSION = "4.1.1"
JARS = jars.Jars(
    name="a Kafka broker",
    folder=f"jars-kafka{VERSION}",
    coordinates=(f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"),
    excluded=(),
    files=(
        "HdrHistogram-2.2.2.jar",
        "argparse4j-0.7.0.jar",
        "caffeine-3.2.0.jar",
        "commons-beanutils-1.9.4.jar",
        "commons-collections-3.2.2.jar",
        "commons-digester-2.1.jar",
        "commons-logging-1.3.2.jar",
        "commons-validator-1.9.0.jar",
        "hash4j-0.22.0.jar",
        "jackson-annotations-2.19.0.jar",
        "jackson-core-2.19.0.jar",
        "jackson-databind-2.19.0.jar",
        "jackson-dataformat-csv-2.19.0.jar",
        "jackson-dataformat-yaml-2.19.0.jar",
        "jackson-datatype-jdk8-2.19.0.jar",
        "jopt-simple-5.0.4.jar",
        "jose4j-0.9.6.jar",
        "jspecify-1.0.0.jar",
        "kafka-clients-4.1.1.jar",
        "kafka-coordinator-common-4.1.1.jar",
        "kafka-group-coordinator-4.1.1.jar",
        "kafka-group-coordinator-api-4.1.1.jar",
        "kafka-metadata-4.1.1.jar",
        "kafka-raft-4.1.1.jar",
        "kafka-server-4.1.1.jar",
        "kafka-server-common-4.1.1.jar",
        "kafka-share-coordinator-4.1.1.jar",
        "kafka-storage-4.1.1.jar",
        "kafka-storage-api-4.1.1.jar",
        "kafka-tools-api-4.1.1.jar",
        "kafka-transaction-coordinator-4.1.1.jar",
        "kafka_2.13-4.1.1.jar",
        "log4j-api-2.24.3.jar",
        "log4j-core-2.24.3.jar",
        "log4j-slf4j-impl-2.24.3.jar",
        "lz4-java-1.8.0.jar",
        "metrics-core-2.2.0.jar",
        "pcollections-4.0.2.jar",
        "re2j-1.8.jar",
        "scala-logging_2.13-3.9.5.jar",
        "slf4j-api-1.7.36.jar",
        "snakeyaml-2.4.jar",
        "snappy-java-1.1.10.7.jar",
        "zstd-jni-1.5.6-10.jar",
    ),
)
"""37 MB, which the set-up of the tests fetches; Scala is Spark's."""
_SCALA = ("scala-library-*.jar", "scala-reflect-*.jar")
_COMMITTED, _ALL = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
_START_SECONDS, _LOOK_SECONDS = 300, 0.1
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/broker.pem
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=8388608
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=300
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
PASSWORD = "word"  # noqa: S105 - of a broker on loopback
_LOGGING = """\
status=error
appender.c.type=Console
appender.c.name=c
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d{ISO8601} %p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.c.ref=c
"""


@dataclass(slots=True)
class Broker:
    """A broker.

    Args:
        folder: of its data.
        port: on 127.0.0.1.
        secure: port of the listener with TLS and SASL, for the user ``lander`` with the password ``PASSWORD``.
    """

    folder: Path
    port: int
    secure: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _producer: Producer | None = field(default=None, init=False)
    _admin: AdminClient | None = field(default=None, init=False)

    @property
    def servers(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def admin(self) -> AdminClient:
        """A client for topics, which lives as long as its answers are waited for."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._admin

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None

    def start(self) -> None:
        """Start it, anew or again, and wait until it answers."""
        java = [str(find_java().binary), *LEAN, f"-Dlog4j2.configurationFile=file:{self.folder}/log4j2.properties"]
        java += ["-cp", os.pathsep.join(map(str, _class_path()))]
        if not (self.folder / "data" / "meta.properties").exists():
            controller = free_port()
            self.secure = free_port()
            _write_certificate(self.folder)
            properties = _PROPERTIES.format(
                port=self.port, secure=self.secure, controller=controller, folder=self.folder
            )
            (self.folder / "server.properties").write_text(properties)
            (self.folder / "log4j2.properties").write_text(_LOGGING)
            name = _identifier()
            tool = [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", name]
            tool += ["--add-scram", f"SCRAM-SHA-256=[name=lander,password={PASSWORD}]", "-c"]
            done = subprocess.run(
                [*tool, f"{self.folder}/server.properties"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
        with (self.folder / "broker.log").open("ab") as log:
            command = [*java, "-Xmx256m", "-Xms64m", "kafka.Kafka", f"{self.folder}/server.properties"]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "broker.log").read_text()[-2000:]
            assert time.monotonic() < until, "the broker does not answer"
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def topic(self, partitions: int = 3, **settings: str | int) -> str:
        """Make a topic. Returns its name."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.make(name, partitions, **settings)
        return name

    def make(self, name: str, partitions: int = 3, **settings: str | int) -> None:
        """Make a topic of that name; settings with underscores for points."""
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        for done in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            done.result()
        self._await_told(name, partitions)

    def remove(self, name: str) -> None:
        """Delete a topic."""
        for done in self.admin.delete_topics([name], operation_timeout=30).values():
            done.result()
        self._await_told(name, 0)

    def forget(self, name: str, partition: int, before: int) -> None:
        """Remove the messages before an offset, as retention does."""
        for done in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            done.result()

    def widen(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        for done in self.admin.create_partitions([NewPartitions(name, partitions)]).values():
            done.result()
        self._await_told(name, partitions)
        self._producer = None  # which knows the former number

    def _await_told(self, name: str, partitions: int) -> None:
        """Wait until the broker tells of a topic with so many partitions, or of none: it does a moment after the controller has made or deleted them."""
        until = time.monotonic() + 60
        while True:
            topic = self.admin.list_topics(name, timeout=60).topics[name]
            gone = topic.error is not None and topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if gone if partitions == 0 else topic.error is None and len(topic.partitions) >= partitions:
                return
            assert time.monotonic() < until, (name, partitions, topic.error)
            time.sleep(0.02)

    def await_committed(self, name: str, partitions: int) -> None:
        """Wait until all messages may be read: the end of a transaction is written into its topics a moment after its producer is told that it has committed."""
        asked = dict.fromkeys((TopicPartition(name, number) for number in range(partitions)), OffsetSpec.latest())
        until = time.monotonic() + 120
        while True:
            ends = [self._offsets(asked, level) for level in (_COMMITTED, _ALL)]
            if ends[0] == ends[1]:
                return
            assert time.monotonic() < until, f"a transaction of {name} is open: {ends}"
            time.sleep(0.02)

    def _offsets(self, asked: dict[TopicPartition, OffsetSpec], level: IsolationLevel) -> list[int]:
        answers = self.admin.list_offsets(asked, isolation_level=level, request_timeout=60)
        return [answer.result().offset for answer in answers.values()]

    def alter(self, name: str, **settings: str | int) -> None:
        """Change settings of a topic."""
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        resource = ConfigResource(ResourceType.TOPIC, name, set_config=config)
        for done in self.admin.alter_configs([resource]).values():
            done.result()

    def producer(self, **settings: str | int) -> Producer:
        """A producer, idempotent, which waits for each answer: with more requests in flight, a partition that was just made can lose the first one (KAFKA-15591)."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        own = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1, "log_level": 0}
        return Producer({"bootstrap.servers": self.servers, **own, **config})

    def put(self, topic: str, messages: Iterable[tuple[int, bytes | None]], **fields: object) -> None:
        """Send messages, each with its partition; further fields as of ``Producer.produce``. Waits for a partition that the broker has yet to tell of."""
        new = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
        unsent, until = list(messages), time.monotonic() + 60
        failed: list[tuple[tuple[int, bytes | None], KafkaError]] = []
        while unsent:
            failed.clear()
            if self._producer is None:
                self._producer = self.producer()
            for message in unsent:
                told = partial(_failed, failed, message)
                self._producer.produce(topic, message[1], partition=message[0], on_delivery=told, **fields)
                self._producer.poll(0)
            assert self._producer.flush(60) == 0
            assert all(error.code() in new and time.monotonic() < until for _, error in failed), failed
            unsent = [message for message, _ in failed]
            if unsent:
                time.sleep(0.1)
                self._producer = None


def _failed(
    failed: list[tuple[tuple[int, bytes | None], KafkaError]],
    message: tuple[int, bytes | None],
    error: KafkaError | None,
    _: object,
) -> None:
    if error is not None:
        failed.append((message, error))


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """A broker, stopped with this context."""
    broker = Broker(folder, free_port())
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _write_certificate(folder: Path) -> None:
    """Write ``broker.pem``, a key and the certificate that it has signed itself, and ``ca.pem``, the certificate."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "ca.pem").write_bytes(certificate.public_bytes(encoding))
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, none)
    (folder / "broker.pem").write_bytes(private + certificate.public_bytes(encoding))


def _class_path() -> list[Path]:
    return [*JARS.paths, *(jar for name in _SCALA for jar in (spark_home() / "jars").glob(name))]


def _identifier() -> str:
    """An id as Kafka writes it: 16 random bytes, base64 for URLs; its tool takes one that begins with a dash for an option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


if __name__ == "__main__":  # the set-up of the tests
    jars.fetch(JARS)
