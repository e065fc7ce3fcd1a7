// A program from its start to its exit status.
import { encode } from "./bytes.js";
import { call, checked, onFailure } from "./calls.js";
import { install } from "./globals.js";
import { errorHead, inspect } from "./inspect.js";
import { arrive } from "./place.js";
import { finish, leave, process } from "./process.js";
import { write } from "./streams.js";
import * as timers from "./timers.js";

// What the engine calls the text of a script, and what it is called in an error. `host` means that
// the bundle itself is none of the script's affair.
export const places = { name: "", host: false };
const [FAILED, LISTENER_FAILED] = [1, 7]; // the exit status of node
const BUNDLE = "componentize-qjs:user.js";

function placed(stack) {
  return String(stack)
    .split("\n")
    .filter((line) => line.trim() && !line.endsWith("(native)") && !(places.host && line.includes(BUNDLE)))
    .map((line) => line.replace(BUNDLE, "skill").replace(/<input>/g, places.name))
    .join("\n");
}

function shown(error) {
  let text;
  if (error instanceof Error) {
    const stack = placed(error.stack ?? "");
    text = `Uncaught ${errorHead(error)}${stack && `\n${stack}`}`;
    if (Object.hasOwn(error, "cause")) text += `\n  [cause]: ${error.cause instanceof Error ? errorHead(error.cause) : inspect(error.cause)}`;
  } else {
    text = `Uncaught ${inspect(error)}`;
  }
  return text;
}

function report(error) {
  let text;
  try {
    text = shown(error);
  } catch {
    text = "Uncaught error, which can not be shown";
  }
  write(2, encode(`${text}\n`));
}

// Ends the program at once, as node does: nothing that waits is done any more.
function fail(error) {
  let [cause, code] = [error, FAILED];
  try {
    if (process.listenerCount("uncaughtException")) {
      process.emit("uncaughtException", error);
      return;
    }
  } catch (another) {
    [cause, code] = [another, LISTENER_FAILED];
  }
  report(cause);
  try {
    finish(code);
  } catch (another) {
    report(another);
    finish(code);
  }
  leave();
}

function guarded(action) {
  try {
    return action();
  } catch (error) {
    fail(error);
    return undefined;
  }
}

// What the engine calls by itself. It would not survive an error there.
function watched() {
  const { queueMicrotask: soon, FinalizationRegistry: Registry } = globalThis;
  const safe = (action) => {
    checked(action);
    return (...given) => guarded(() => call(action, undefined, given));
  };
  const found = { queueMicrotask: (action) => soon(safe(action)) };
  if (!Registry) return found;
  class FinalizationRegistry extends Registry {
    constructor(action) {
      super(safe(action));
    }
  }
  return { ...found, FinalizationRegistry };
}

// The four exports of the component; `main` may give a promise, which is waited for.
export function program(main) {
  install(watched());
  onFailure(fail);
  return {
    start() {
      arrive();
      timers.begin();
      guarded(() => {
        const done = main();
        if (typeof done?.then === "function") done.then(undefined, fail);
      });
    },
    pump: () => new Promise(() => {}),
    turn() {
      return guarded(() => timers.turn()) ?? true;
    },
    run: {
      run() {
        guarded(() => finish(process.exitCode ?? 0));
        finish(process.exitCode ?? 0);
      },
    },
  };
}
