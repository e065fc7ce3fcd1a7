// The functions of the world as QuickJS has them: numbers of 64 bits are Number, not BigInt.
import * as files from "wasi:filesystem/types@0.2.0";
import * as streams from "wasi:io/streams@0.2.0";

function widened(kind, name, places) {
  const native = kind.prototype[name];
  kind.prototype[name] = function (...given) {
    for (const place of places) given[place] = BigInt(given[place]);
    return native.apply(this, given);
  };
}

widened(streams.InputStream, "blockingRead", [0]);
widened(files.Descriptor, "read", [0, 1]);
widened(files.Descriptor, "write", [1]);

const CHANGED = {
  "wasi:clocks/monotonic-clock@0.2.0": (clock) => ({
    now: () => Number(clock.now()),
    subscribeDuration: (nanoseconds) => clock.subscribeDuration(BigInt(nanoseconds)),
  }),
  "wasi:random/random@0.2.0": (random) => ({
    getRandomBytes: (count) => random.getRandomBytes(BigInt(count)),
  }),
};

export function adapted(given, name) {
  return CHANGED[name]?.(given) ?? given;
}
