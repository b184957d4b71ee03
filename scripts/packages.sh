# shellcheck shell=bash
# Sourced by the other scripts: installs packages of the operating system.

# install_packages WHAT APT DNF APK BREW
# installs, without asking, what the system's package manager calls WHAT: a list of
# names for each package manager. Fails with words where that is not possible.
install_packages() {
	local what=$1 apt=$2 dnf=$3 apk=$4 brew=$5
	local -a as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		as_root=(sudo -n)
	fi

	local manager names
	if command -v apt-get >/dev/null; then
		manager=apt-get names=$apt
	elif command -v dnf >/dev/null; then
		manager=dnf names=$dnf
	elif command -v apk >/dev/null; then
		manager=apk names=$apk
	elif command -v brew >/dev/null; then
		manager=brew names=$brew as_root=()
	else
		echo "$what is missing, and this system has none of apt-get, dnf, apk and brew: install $what by hand" >&2
		return 1
	fi
	if [ ${#as_root[@]} -gt 0 ] && ! { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; then
		echo "$what is missing; install it as root: $manager install $names" >&2
		return 1
	fi

	echo "$what is missing: installing $names with $manager"
	local -a run=(${as_root[@]+"${as_root[@]}"})
	case $manager in
	apt-get)
		local -a opts=(-y -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
		run+=(env DEBIAN_FRONTEND=noninteractive apt-get "${opts[@]}")
		# A list that cannot be refreshed may still be good enough to install from.
		"${run[@]}" update || echo "apt-get update failed; trying to install nevertheless" >&2
		# shellcheck disable=SC2086 # names is a list
		"${run[@]}" install --no-install-recommends $names
		;;
	dnf)
		# shellcheck disable=SC2086
		"${run[@]}" dnf install -y $names
		;;
	apk)
		# shellcheck disable=SC2086
		"${run[@]}" apk add --no-cache $names
		;;
	brew)
		# shellcheck disable=SC2086
		"${run[@]}" brew install $names
		;;
	esac </dev/null || {
		echo "$what could not be installed: see $manager's error above, or install $names by hand" >&2
		return 1
	}
}
