#!/bin/sh
# Unpack Debian's package of Chromium and the libraries that this machine lacks, without installing anything.
# Usage: unpack_chromium.sh FOLDER. The program is FOLDER/chromium.
set -eu
mkdir -p "$1"
cd "$1"
missing=$(apt-get install --simulate --no-install-recommends chromium | awk '/^Inst/ {print $2}')
# shellcheck disable=SC2086
apt-get download chromium chromium-common $missing
for package in *.deb; do
  dpkg -x "$package" root
done
libraries=$(find "$PWD/root" -name '*.so*' -printf '%h\n' | sort -u | paste -s -d :)
cat > chromium <<END
#!/bin/sh
LD_LIBRARY_PATH="$libraries" exec "$PWD/root/usr/lib/chromium/chromium" "\$@"
END
chmod +x chromium
