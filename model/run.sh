#!/bin/sh
# Checks the model of the protocol with Spin: with all rules each acquirer's run must hold, each mutant (one rule taken away)
# must be caught, each witness must be reached, and each backed rule must not be missed. Prints states, memory and seconds.
# Ends with 1 when one of them does not, and leaves the folder of that run, with its trail.
#
#   sh model/run.sh           the reduced runs: about a minute on two cores, 250 MB
#   sh model/run.sh large     the same rules with more sends, crashes and faults: about three minutes, 1.3 GB
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cores=2
minutes=10   # limit of one run
depth=100000 # of the search; a run that meets it is a failure

# one FOLDER EXPECTED NAME FLAG...: one run, one line.
one() {
	dir=$1/$3 expected=$2 name=$3
	shift 3
	case $expected in
	holds | backed) optimize=-O1 ;;
	*) optimize=-O0 ;; # they end after a few states: compiling is what costs
	esac
	mkdir "$dir" && cd "$dir"
	cp "$here/pay.pml" .
	if ! spin -a "$@" pay.pml >build.log 2>&1 ||
		! gcc $optimize -w -DSAFETY -DCOLLAPSE -DMEMLIM="$MEMORY" -o pan pan.c >>build.log 2>&1; then
		cat build.log
		return 1
	fi
	timeout ${minutes}m ./pan -m$depth -w22 >pan.log 2>&1 || true
	found=unfinished why=
	if grep -q 'assertion violated' pan.log; then
		found=caught
		case $(grep -m1 'assertion violated' pan.log) in # the asserts of pay.pml
		*movements*) why=I-1 ;;
		*paidEvents* | *'(st[p]==4)'*) why=I-3 ;;
		*conflict\[p\]*) why=I-4 ;;
		*conflict*) why=P7 ;;
		*) why=Auditor ;;
		esac
	elif grep -q 'errors: 0' pan.log && ! grep -qE 'Search not completed|max search depth too small' pan.log; then
		found=holds
	fi
	case $expected:$found in
	holds:holds | mutant:caught | witness:caught | backed:holds) verdict=ok ;;
	*) verdict=FAILED ;;
	esac
	[ "$expected" != witness ] || why=
	printf '%-7s %-8s %-19s %-10s %-8s %9s states %5s MB %6s s  %s\n' $verdict "$expected" "$name" $found "$why" \
		"$(awk '/states, stored/ {print $1}' pan.log)" "$(awk '/total actual memory/ {printf "%d", $1}' pan.log)" \
		"$(awk '/elapsed time/ {print $4}' pan.log)" "$*"
	[ $verdict = FAILED ] || return 0
	[ ! -f pay.pml.trail ] || echo "        what happened: cd $dir && ./pan -r pay.pml.trail"
	return 1
}

reduced() {
	cat <<-'LIST'
		holds keys -DACQ=KEYS -DFAULTS=2
		holds window -DACQ=KEYS -DWINDOW=1
		holds forgets -DACQ=FORGETS -DFAULTS=2
		holds reference -DACQ=REFERENCE -DFAULTS=2
		holds nothing -DACQ=NOTHING -DFAULTS=2
		holds lies -DACQ=LIES
		witness next-payment-paid -DREACH=1
		witness paid-after-repeat -DREACH=2
		witness conflict -DREACH=3 -DACQ=FORGETS
		witness review -DREACH=4 -DACQ=NOTHING
		witness found-after-window -DREACH=5 -DNP=1 -DWINDOW=1
		mutant unique -DUNIQUE=0
		mutant gate -DGATE=0 -DACQ=FORGETS
		mutant one-key -DONEKEY=0
		mutant guard -DGUARD=0
		mutant fence -DFENCE=0
		mutant permit-fence -DPERMITFENCE=0
		mutant facts -DFACTS=0
		mutant evidence -DEVIDENCE=0 -DACQ=FORGETS
		mutant lag -DLAG=0
		mutant asked -DASKED=0
		mutant unknown -DUNKNOWN=0
		mutant only-send -DONLYSEND=0
		mutant counted -DCOUNTED=0
		mutant not-sent -DNOTSENT=0
		mutant no-repeat -DNOREPEAT=0 -DACQ=NOTHING
		mutant no-hidden -DNOHIDDEN=0
		mutant cut-off -DCUTOFF=0 -DNP=1 -DWINDOW=1
		mutant margin -DMARGIN=0 -DNP=1 -DWINDOW=1
		mutant fresh -DFRESH=0
		mutant review-rule -DREVIEW=0 -DACQ=NOTHING
		mutant p7-claim -DP7CLAIM=0 -DACQ=LIES
		mutant p7-permit -DP7PERMIT=0 -DACQ=LIES
		backed lease -DLEASE=0
		backed lookup -DLOOKUP=0
		backed p7-both -DP7CLAIM=0 -DP7PERMIT=0 -DACQ=FORGETS
	LIST
}

large() {
	for acquirer in KEYS FORGETS REFERENCE NOTHING LIES; do
		echo "holds large-$acquirer -DACQ=$acquirer -DSENDS=3 -DCRASHES=2 -DFAULTS=2"
	done
	echo "holds large-window -DACQ=KEYS -DWINDOW=1 -DCRASHES=2 -DFAULTS=2"
}

case ${1:-reduced} in
one)
	shift
	one "$@"
	exit
	;;
reduced) MEMORY=900 ;;
large) MEMORY=2000 ;;
*)
	echo "usage: sh model/run.sh [reduced|large]" >&2
	exit 2
	;;
esac
export MEMORY # MB, of one run; as many runs at once as cores

for tool in spin gcc; do
	if ! command -v $tool >/dev/null; then
		echo "make model needs spin and gcc; $tool is missing. On Debian: apt-get install spin gcc" >&2
		exit 1
	fi
done

work=$(mktemp -d)
began=$(date +%s)
result=0
${1:-reduced} | xargs -P $cores -L 1 sh "$here/run.sh" one "$work" || result=1
echo "$(($(date +%s) - began)) seconds in all, $(spin -V)"
if [ $result = 0 ]; then
	rm -r "$work"
else
	echo "FAILED: a rule set does not hold, or what must be caught is not" >&2
fi
exit $result
