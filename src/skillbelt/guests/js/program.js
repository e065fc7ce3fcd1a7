// A program from its start to its exit status.
import { encode } from "./bytes.js";
import { install } from "./globals.js";
import { errorHead, inspect } from "./inspect.js";
import { arrive } from "./place.js";
import { finish, process } from "./process.js";
import { write } from "./streams.js";
import * as timers from "./timers.js";

let failed = false;

// What the engine calls the text of a script, and what it is called in an error. `host` means that
// the bundle itself is none of the script's affair.
export const places = { name: "", host: false };
const BUNDLE = "componentize-qjs:user.js";

function placed(stack) {
  return String(stack)
    .split("\n")
    .filter((line) => line.trim() && !line.endsWith("(native)") && !(places.host && line.includes(BUNDLE)))
    .map((line) => line.replace(BUNDLE, "skill").replace(/<input>/g, places.name))
    .join("\n");
}

export function report(error) {
  let text;
  if (error instanceof Error) {
    const stack = placed(error.stack ?? "");
    text = `Uncaught ${errorHead(error)}${stack && `\n${stack}`}`;
    if (Object.hasOwn(error, "cause")) text += `\n  [cause]: ${error.cause instanceof Error ? errorHead(error.cause) : inspect(error.cause)}`;
  } else {
    text = `Uncaught ${inspect(error)}`;
  }
  write(2, encode(`${text}\n`));
}

function fail(error) {
  if (failed) return;
  if (process.listenerCount("uncaughtException")) {
    process.emit("uncaughtException", error);
    return;
  }
  failed = true;
  report(error);
}

function guarded(action) {
  try {
    return action();
  } catch (error) {
    fail(error);
    return undefined;
  }
}

// The four exports of the component; `main` may give a promise, which is waited for.
export function program(main) {
  install();
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
      if (failed) return false;
      return guarded(() => timers.turn()) ?? !failed;
    },
    run: {
      run() {
        guarded(() => finish(failed ? 1 : (process.exitCode ?? 0)));
      },
    },
  };
}
