#!/usr/bin/env bash
# Make headless drawing work if it does not: install the OpenGL packages, or say how. Training does not need them, so
# this script never fails.
set -u
cd "$(dirname "$0")/.." || exit 0

command=$(.venv/bin/python -c 'from gaitway.envs.pictures.render import APT_COMMAND; print(APT_COMMAND)') || exit 0

can_draw() {
  env -u MUJOCO_GL -u PYOPENGL_PLATFORM .venv/bin/python -c \
    'import sys; from gaitway.envs.pictures.render import rendering_problem; sys.exit(rendering_problem() is not None)' 2>/dev/null
}

as_root=""
if [ "$(id -u)" != 0 ]; then
  as_root="sudo -n"
fi

can_draw && exit 0
if command -v apt-get >/dev/null && $as_root true 2>/dev/null; then
  echo "installing OpenGL for videos: $command"
  if ! $as_root env DEBIAN_FRONTEND=noninteractive sh -c "$command" >/dev/null 2>.venv/rendering_libraries.log; then
    tail -n 2 .venv/rendering_libraries.log
  fi
fi
can_draw || echo "videos need OpenGL, everything else works without; on Debian or Ubuntu run as root: $command"
exit 0
