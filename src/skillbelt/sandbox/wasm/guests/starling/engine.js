// What the engine has in another way than QuickJS. Imported before everything else.

// Without a timer of its own, it goes on at once; all promises are kept before.
const later = globalThis.setTimeout;
export const settled = () => new Promise((done) => later(done, 0));

// It does not say what it uses.
globalThis.__cqjs = { getMemoryUsage: () => ({ mallocSize: 0, memoryUsedSize: 0 }) };

// The calls that led to an error, as lines of the form that QuickJS gives them.
const { get, set } = Object.getOwnPropertyDescriptor(Error.prototype, "stack");
const CALL = /^([^@]*)@(?:.*\/)?skill\.js:(\d+):(\d+)$/;

function placed(stack) {
  const lines = String(stack).split("\n");
  // Who waits for what failed is not told there.
  const end = lines.findIndex((line) => line.startsWith("async*"));
  const calls = (end < 0 ? lines : lines.slice(0, end)).map((line) => CALL.exec(line)).filter(Boolean);
  return calls.map(([, name, line, column]) => `    at ${name && !name.endsWith("<") ? name : "<anonymous>"} (componentize-qjs:user.js:${line}:${column})\n`).join("");
}

Object.defineProperty(Error.prototype, "stack", {
  get() {
    const stack = get.call(this);
    return stack === undefined ? stack : placed(stack);
  },
  set,
  configurable: true,
});
