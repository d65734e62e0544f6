# shellcheck shell=bash
# Sourced by the clients that are bash scripts: reports scenarios and holds what they share.
# A scenario is a function; it fails with `fail "what was wrong"`, or when a command in it fails.

: "${BOOTSTRAP:?}" "${PREFIX:?}" "${CACHE:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	printf '%s\n' "$*" >"$work/detail"
	exit 1
}

# scenario NAME: runs the function case_NAME (with _ for -) and prints its line.
scenario() {
	local start=$EPOCHREALTIME verdict=PASS detail=
	rm -f "$work/detail"
	(
		trap - EXIT # the folder is the parent's to remove
		set -eE
		trap 'printf "line %s: %s\n" "$LINENO" "$BASH_COMMAND" >>"$work/detail"' ERR
		"case_${1//-/_}"
	) </dev/null >"$work/$1.out" 2>"$work/$1.err"
	# Not `if ( … )`: set -e is off inside a condition.
	# shellcheck disable=SC2181
	if (($? != 0)); then
		verdict=FAIL
		detail=$(cat "$work/detail" "$work/$1.err" 2>/dev/null | head -c 1000 | tr '\n' ' ')
	fi
	printf 'CASE %s %s %s %s\n' "$1" "$verdict" "$(seconds_since "$start")" "$detail"
}

seconds_since() {
	awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'
}

# until_true SECONDS COMMAND...: asks the command every 100 ms until it succeeds.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}

# same WHAT GOT_FILE WANT_FILE: fails with the first difference.
same() {
	local difference
	difference=$(diff "$2" "$3") || fail "$1 differs (< got, > wanted): $(head -4 <<<"$difference" | cut -c1-100)"
}
