#!/bin/sh
# Installs MoreGPU for this user alone, without root:
#
#   sh install.sh                     the tray is installed; join later from its menu, or: moregpu-tray join
#   sh install.sh < invite.txt        and joins the pool whose invite comes over standard input (never as an argument:
#                                     other users of this machine could read it)
#   sh install.sh --uninstall         takes everything away again, the pool's keys too
#
# What is downloaded is checked against the hash below before anything of it is run.
set -eu

VERSION='@VERSION@'
FILE='@FILE@'
SHA256='@SHA256@'
FROM="${MOREGPU_FROM:-@FROM@}"  # https://…, or a folder

OPT="${XDG_DATA_HOME:-$HOME/.local/share}/moregpu"
BIN="$HOME/.local/bin"
APPS="${XDG_DATA_HOME:-$HOME/.local/share}/applications"
PROGRAMS='moregpu moregpu-tray moregpu-tui'

say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

stop_running() {
  if [ -x "$OPT/moregpu-tray" ]; then "$OPT/moregpu-tray" quit > /dev/null 2>&1 || true; fi
}

uninstall() {
  if [ -x "$OPT/moregpu-tray" ]; then
    "$OPT/moregpu-tray" quit > /dev/null 2>&1 || true
    "$OPT/moregpu-tray" leave > /dev/null 2>&1 || true
    "$OPT/moregpu-tray" autostart off > /dev/null 2>&1 || true
  fi
  for name in $PROGRAMS; do
    if [ "$(readlink "$BIN/$name" 2> /dev/null)" = "$OPT/$name" ]; then rm -f "$BIN/$name"; fi
  done
  rm -rf "$OPT" "$APPS/moregpu-tray.desktop"
  rm -rf "${XDG_STATE_HOME:-$HOME/.local/state}/moregpu" "${XDG_CACHE_HOME:-$HOME/.cache}/moregpu"
  say 'MoreGPU is gone. Settings, if you changed any, are in ~/.config/moregpu; delete them when you like.'
}

fetch() {  # fetch NAME TO
  case "$FROM" in
    https://*)
      if command -v curl > /dev/null; then curl -fsSL --proto '=https' --tlsv1.2 -o "$2" "$FROM/$1"
      elif command -v wget > /dev/null; then wget -q --https-only -O "$2" "$FROM/$1"
      else fail 'neither curl nor wget is installed'; fi ;;
    *://*) fail 'MOREGPU_FROM must be a folder or begin with https://' ;;
    '') fail 'say where the release is: MOREGPU_FROM=https://… (or a folder) sh install.sh' ;;
    *) cp "$FROM/$1" "$2" ;;
  esac
}

check() {
  if command -v sha256sum > /dev/null; then found=$(sha256sum "$1"); else found=$(shasum -a 256 "$1"); fi
  [ "${found%% *}" = "$SHA256" ] || fail "the download is not what this script was made for (sha256 ${found%% *}); nothing was installed"
}

case "${1:-}" in
  --uninstall) uninstall; exit 0 ;;
  '') ;;
  *) fail "an invite is not taken as an argument; pipe it in: sh install.sh < invite.txt" ;;
esac

[ -n "$SHA256" ] || fail 'this copy of the script has no hash in it; take the one from the release'
[ "$(uname -s)" = Linux ] || fail 'this script is for Linux'
case "$FILE" in *"-$(uname -m).tar.gz") ;; *) fail "this release is for another processor than $(uname -m): $FILE" ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "fetching $FILE"
fetch "$FILE" "$work/$FILE"
check "$work/$FILE"
tar -xzf "$work/$FILE" -C "$work"

# A version that runs is stopped, and replaced in one step: the old one stays beside it until the new one answers.
stop_running
mkdir -p "$(dirname "$OPT")" "$BIN" "$APPS"
rm -rf "$OPT.new" "$OPT.old"
mv "$work/moregpu" "$OPT.new"
"$OPT.new/moregpu-tray" --version > /dev/null || { rm -rf "$OPT.new"; fail 'the new version does not run here; nothing was changed'; }
if [ -e "$OPT" ]; then mv "$OPT" "$OPT.old"; fi
mv "$OPT.new" "$OPT"
rm -rf "$OPT.old"
for name in $PROGRAMS; do ln -sfn "$OPT/$name" "$BIN/$name"; done
sed -e "s|^Exec=.*|Exec=\"$OPT/moregpu-tray\"|" -e "s|^Icon=.*|Icon=$OPT/share/moregpu.png|" \
  "$OPT/share/moregpu-tray.desktop" > "$APPS/moregpu-tray.desktop"
say "installed MoreGPU $VERSION: $("$OPT/moregpu-tray" --version) in $OPT"

if [ ! -t 0 ] && invite=$(cat) && [ -n "$invite" ]; then
  printf '%s\n' "$invite" | "$OPT/moregpu-tray" join --yes --exit
fi
case ":$PATH:" in *":$BIN:"*) ;; *) say "$BIN is not on your PATH; add it, or call $BIN/moregpu-tray" ;; esac
say 'start it: moregpu-tray        at each login: moregpu-tray autostart on'
