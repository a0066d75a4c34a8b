#!/bin/sh
# The tests of test/brokers on one node of Apache Kafka 4. `run.sh jars` only brings the jars into .cache, once for each pom.xml.
set -eu
cd "$(dirname "$0")/../.."

jars=$PWD/.cache/peers/kafka-$(cksum <test/kafka/pom.xml | cut -d' ' -f1)
if [ ! -e "$jars/complete" ]; then
  command -v mvn >/dev/null || { echo "Maven is needed: on Debian, apt-get install maven" >&2; exit 1; }
  rm -rf "$jars"
  mvn -B -q -f test/kafka/pom.xml org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$jars"
  touch "$jars/complete"
fi
[ "${1:-}" = jars ] && exit 0

command -v java >/dev/null || { echo "Java 17 or later is needed: on Debian, apt-get install openjdk-17-jre-headless" >&2; exit 1; }

# Brokers end with their tests. Should the tests not end as they should, their brokers are ended here, by process id.
pids=$(mktemp)
clear_up() {
  while read -r pid; do
    case $(ps -o args= -p "$pid" 2>/dev/null) in
    *kafka.Kafka*) kill -9 "$pid" ;;
    esac
  done <"$pids"
  rm -f "$pids"
}
trap clear_up EXIT
trap 'exit 1' INT TERM HUP

cd test
HAPAX_TEST_KAFKA_JARS=$jars HAPAX_TEST_PIDS=$pids ${GO:-go} test -count=1 -timeout 20m -v -run '/ApacheKafka$' -skip '^TestKafka|^TestNATS' ./brokers
