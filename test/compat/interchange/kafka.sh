# shellcheck shell=bash
# Sourced: runs a real Kafka 4.4 by test/compat/kafka/serve, with a cleaner that does not wait.
# interchange is the program of test/compat/go/cmd/interchange.

: "${compat:?}" "${interchange:?}"
kafka_pid=

# free_port: two neighbouring ports that nobody listens on now.
free_port() {
	local port
	while port=$((20000 + RANDOM % 12000)); do
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
		(exec 3<>"/dev/tcp/127.0.0.1/$((port + 1))") 2>/dev/null && continue
		echo "$port"
		return
	done
}

# start_kafka DIR: sets kafka to its address. The JVM's output goes to DIR.log.
start_kafka() {
	local port i
	port=$(free_port)
	kafka=127.0.0.1:$port
	SERVE_PROPERTIES=$'log.cleaner.backoff.ms=300\noffsets.topic.num.partitions=2\nlog.initial.task.delay.ms=500' \
		"$compat/kafka/serve" "$port" "$1" >>"$1.log" 2>&1 &
	kafka_pid=$!
	for ((i = 0; i < 600; i++)); do
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
		kill -0 "$kafka_pid" 2>/dev/null || break
		sleep 0.1
	done
	echo "Kafka did not start: $(tail -3 "$1.log")" >&2
	return 1
}

stop_kafka() {
	[[ -n $kafka_pid ]] || return 0
	kill -TERM "$kafka_pid" 2>/dev/null
	wait "$kafka_pid" || true
	kafka_pid=
}

# fill ADDRESS_VARIABLE RESTART STATE STEPS: writes so many steps; RESTART is run between them, so that each has a leader
# epoch of its own. The state of a producer by hand goes to the file STATE.
fill() {
	local step
	"$interchange" write "${!1}" 1
	"$interchange" state "${!1}" "$3"
	for ((step = 2; step <= $4; step++)); do
		"$2"
		"$interchange" write "${!1}" "$step"
	done
	"$interchange" compacted "${!1}"
}
