# Gives a rank a device of its own; sourced by rank.sh, or in the image where torchrun starts the ranks.
# shellcheck shell=sh

# one_device NAME LIST: of the devices that the variable NAME lists, the rank sees the one of its own number; LOCAL_RANK is
# then 0, the index of that device, and RECIPE_LOCAL_RANK the number of the rank on its node.
one_device() {
    device=$LOCAL_RANK device_list=$2
    if [ -n "$2" ]; then
        while [ "$device" -gt 0 ]; do
            case $device_list in *,*) device_list=${device_list#*,} ;; *) device_list="" ;; esac
            device=$((device - 1))
        done
        device=${device_list%%,*}
    fi
    if [ -z "$device" ]; then
        echo "recipe: error: rank $RANK is number $LOCAL_RANK on its node, and $1 lists the devices $2: none is left" >&2
        return 1
    fi
    export "$1=$device" RECIPE_LOCAL_RANK="$LOCAL_RANK" LOCAL_RANK=0
}
