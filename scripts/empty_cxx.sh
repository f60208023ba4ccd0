#!/bin/sh
# A C++ compiler whose objects are empty, for tools that look at Go code alone.
out= last= compiles=
for a; do
  [ "$last" = -o ] && out=$a
  [ "$a" = -c ] && compiles=1
  [ "$a" = '-###' ] && exec g++ "$@" # what compiler this is
  last=$a
done
[ -n "$compiles" ] && [ -n "$out" ] && exec g++ -x c++ -c /dev/null -o "$out"
exec g++ "$@" -Wl,--unresolved-symbols=ignore-all
