#!/usr/bin/env bash
# Install the browser that the tests of pages drive, if it is not there, or say how. Nothing else needs it, so this script
# never fails.
set -u

command="apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver"
as_root=""
if [ "$(id -u)" != 0 ]; then
  as_root="sudo -n"
fi

has_browser() {
  command -v chromium >/dev/null && command -v chromedriver >/dev/null
}

has_browser && exit 0
if command -v apt-get >/dev/null && $as_root true 2>/dev/null; then
  echo "installing a browser for the tests of pages: $command"
  $as_root env DEBIAN_FRONTEND=noninteractive sh -c "$command" >/dev/null 2>&1
fi
has_browser || echo "the tests of pages need a browser and are skipped without; on Debian or Ubuntu run as root: $command"
exit 0
