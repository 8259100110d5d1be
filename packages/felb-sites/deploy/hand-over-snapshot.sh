#!/bin/sh
# Give the snapshot that the loader has written to the vault: hand-over-snapshot.sh STAGING VAULT [OWNER]
# The rows are there before the file that names them; older rows go last. Links are not followed.
set -eu
staging=$1 vault=$2 owner=${3:-}
take() {
    test -f "$staging/$1" && test ! -L "$staging/$1"
    cp -P "$staging/$1" "$vault/.$1.new"
    test -z "$owner" || chown -h "$owner:" "$vault/.$1.new"
    test -L "$vault/.$1.new" || chmod 600 "$vault/.$1.new"
    mv -f "$vault/.$1.new" "$vault/$1"
}
for path in "$staging"/snapshot-*.felb; do
    take "${path##*/}"
done
take snapshot.json
for path in "$vault"/snapshot-*.felb; do
    test -e "$staging/${path##*/}" || rm -f "$path"
done
