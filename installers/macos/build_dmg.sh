#!/bin/sh
# On a Mac, after `python -m installers.build`: makes, signs and notarises dist/MoreGPU-VERSION.dmg.
#
#   installers/macos/build_dmg.sh VERSION            unsigned, to try
#   IDENTITY='Developer ID Application: …' PROFILE=notary installers/macos/build_dmg.sh VERSION
#   installers/macos/build_dmg.sh --dry-run VERSION  only checks that every input is there (runs anywhere)
set -eu
cd "$(dirname "$0")/../.."

dry=no
if [ "${1:-}" = --dry-run ]; then dry=yes; shift; fi
version=${1:?a version is needed}
app=build/frozen/MoreGPU.app
image=dist/MoreGPU-$version.dmg

need() { [ -e "$1" ] || { printf 'build_dmg.sh: %s is missing\n' "$1" >&2; exit 1; }; }
for input in installers/moregpu.spec installers/entry.py installers/macos/entitlements.plist assets/icons/moregpu.icns LICENSE docs/contributor.md; do
  need "$input"
done
if [ "$dry" = yes ]; then echo "all inputs of $image are there"; exit 0; fi

need "$app"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -R "$app" "$stage/"
cp LICENSE docs/contributor.md "$stage/"
ln -s /Applications "$stage/Applications"
if [ -n "${IDENTITY:-}" ]; then
  codesign --force --deep --timestamp --options runtime --entitlements installers/macos/entitlements.plist \
    --sign "$IDENTITY" "$stage/MoreGPU.app"
  codesign --verify --strict "$stage/MoreGPU.app"
fi
mkdir -p dist
hdiutil create -volname MoreGPU -srcfolder "$stage" -format UDZO -ov "$image"
if [ -n "${IDENTITY:-}" ] && [ -n "${PROFILE:-}" ]; then
  codesign --timestamp --sign "$IDENTITY" "$image"
  xcrun notarytool submit "$image" --keychain-profile "$PROFILE" --wait
  xcrun stapler staple "$image"
fi
