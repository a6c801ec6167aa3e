#!/usr/bin/env bash
# One call on a lent machine, in the root of the tree that travelled: bash tools/lent_call.sh OUT MINUTES [ready|measure|test]
#
# carry/1/steps.sh, which tools/lent_gpu.py wrote, holds the limits and a line for each step. A step whose data did not
# come yet is left for a later call, as are the steps of a sweep file that waits for a choice. What a step packed goes
# into a folder of its number once it ends: of a packing that is killed nothing is left in OUT.
OUT=$1 MINUTES=$2 FIRST=${3:-} PYTHON=${PYTHON:-python3} HELD=
export PYTHONUNBUFFERED=1 PYTHONPATH=carry/1/lib:src
UNPACK=()
for part in $(find carry -maxdepth 1 -name '[0-9]*' | sort -V); do UNPACK+=(--unpack "$part"); done

go() { # number, mark that it is done, folders that hold its data, jobs at the same time, phases, jobs, then: words
    local number=$1 mark=runs/lent/$2 parts=$3 together=$4 phases=$5 jobs=$6 then=$7 file=${6%%:*} phase left part code
    case $HELD in *" $file "*) echo "== $number waits for a choice: $jobs" && return ;; esac
    [ -z "$then" ] || HELD+=" $file "
    for part in $(seq "$parts"); do
        [ -d "carry/$part" ] || { echo "== $number waits for carry/$part: $jobs" && return; }
    done
    for phase in $phases; do
        left=$((END - SECONDS))
        [ ! -e "$mark" ] || break
        [ $left -ge 30 ] && [ $FILES -ge 1 ] || { echo "== $number finds no time, or no file for it: $jobs" && break; }
        echo "== $number, $phase, $left s: $jobs"
        $PYTHON -m ringfence sweep "$jobs" $([ "$phase" = all ] || echo "--phase $phase") "${UNPACK[@]}" \
            --data runs/data --budget ${left}s --side-by-side "$together" \
            --pack "$OUT" --pack-mib "$MIB" --pack-files $FILES --pack-total $TOTAL --no-pack-pictures
        code=$?
        echo "== $number, $phase: code $code after $SECONDS s"
        [ "$phase" != all ] || [ $code != 0 ] || touch "$mark"
    done
    if compgen -G "$OUT/work-*.tgz" > /dev/null; then # a kill before leaves them where they are
        mkdir -p "$OUT/$number" && mv "$OUT"/work-*.tgz "$OUT/$number" && spent "$OUT/$number"
    fi
    if [ -n "$then" ] && [ -e "$mark" ]; then
        # shellcheck disable=SC2086
        $PYTHON $then && HELD=${HELD/ $file /}
    fi
}

spent() { # a folder of what comes back
    FILES=$((FILES - $(find "$1" -type f ! -name log | wc -l))) TOTAL=$((TOTAL - $(du -sm "$1" | cut -f1)))
}

call() {
    if [ "$FIRST" = ready ]; then # beside the steps, for what a later call measures
        # shellcheck disable=SC2086
        nice -n 19 $PYTHON benchmarks/gpu_sitting.py $MEASURED --ready --seconds $((END - SECONDS)) > runs/ready.log 2>&1 &
    elif [ "$FIRST" = test ]; then
        FILES=$((FILES - 3)) # what the tests tell
        # shellcheck disable=SC2086
        nice -n 19 $PYTHON benchmarks/gpu_sitting.py $TESTED --seconds $((END - SECONDS)) --out "$OUT" > runs/tests.log 2>&1 &
    elif [ "$FIRST" = measure ]; then
        # shellcheck disable=SC2086
        $PYTHON benchmarks/gpu_sitting.py $MEASURED --seconds $((END - SECONDS)) --out "$OUT"
        spent "$OUT"
    fi
    steps
    wait # nothing of this call works beside the next
}

[[ $MINUTES =~ ^[0-9]+$ ]] || { echo "MINUTES: must be whole; got $MINUTES" && exit 2; }
. carry/1/steps.sh || exit 2
END=$((MINUTES * 60 - SPARE)) FILES=$((FILES - 1)) # one is the log
mkdir -p "$OUT" runs/lent runs/data
call 2>&1 | tee "$OUT/log"
