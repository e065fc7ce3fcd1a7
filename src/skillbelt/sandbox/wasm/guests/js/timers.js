// Timers, and the turns of the event loop. Between two turns all promises are kept.
import clock from "wasi:clocks/monotonic-clock@0.2.0";
import { call, checked } from "./calls.js";

const waiting = new Map();
let immediates = [];
let last = 0;
let origin = 0;

export const now = () => (clock.now() - origin) / 1e6;

export function begin() {
  origin = clock.now();
}

class Timeout {
  constructor(id) {
    this.id = id;
  }
  ref() {
    return this;
  }
  unref() {
    const timer = waiting.get(this.id);
    if (timer) timer.kept = false;
    return this;
  }
  hasRef() {
    return waiting.get(this.id)?.kept ?? false;
  }
  refresh() {
    const timer = waiting.get(this.id);
    if (timer) timer.due = now() + timer.every;
    return this;
  }
  [Symbol.toPrimitive]() {
    return this.id;
  }
}

function add(action, delay, given, repeat) {
  checked(action);
  const every = Math.max(1, Number(delay) || 1);
  waiting.set(++last, { action, given, due: now() + every, every, repeat, kept: true, order: last });
  return new Timeout(last);
}

export const setTimeout = (action, delay, ...given) => add(action, delay, given, false);
export const setInterval = (action, delay, ...given) => add(action, delay, given, true);
export function clearTimeout(timer) {
  waiting.delete(typeof timer === "object" && timer ? timer.id : Number(timer));
}
export const clearInterval = clearTimeout;

export function setImmediate(action, ...given) {
  const one = { action: checked(action), given };
  immediates.push(one);
  return one;
}
export function clearImmediate(one) {
  immediates = immediates.filter((other) => other !== one);
}

// Does the next thing there is to do; false when nothing is left.
export function turn() {
  const first = immediates.shift();
  if (first) {
    call(first.action, undefined, first.given);
    return true;
  }
  const timers = [...waiting].map(([id, timer]) => ({ id, timer }));
  if (!timers.some(({ timer }) => timer.kept)) return false;
  timers.sort((one, other) => one.timer.due - other.timer.due || one.timer.order - other.timer.order);
  const { id, timer } = timers[0];
  const rest = timer.due - now();
  if (rest > 0) {
    const moment = clock.subscribeDuration(Math.ceil(rest * 1e6));
    moment.block();
    moment[Symbol.dispose]?.();
  }
  if (timer.repeat) timer.due = now() + timer.every;
  else waiting.delete(id);
  call(timer.action, undefined, timer.given);
  return true;
}
