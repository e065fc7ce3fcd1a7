// node:events, as far as scripts use it.
import { call } from "./calls.js";

export class EventEmitter {
  #listeners = new Map();
  on(name, listener) {
    this.#listeners.set(name, [...(this.#listeners.get(name) ?? []), listener]);
    return this;
  }
  once(name, listener) {
    const only = (...given) => {
      this.off(name, only);
      call(listener, this, given);
    };
    only.listener = listener;
    return this.on(name, only);
  }
  off(name, listener) {
    const kept = (this.#listeners.get(name) ?? []).filter((one) => one !== listener && one.listener !== listener);
    this.#listeners.set(name, kept);
    return this;
  }
  removeAllListeners(name) {
    if (name === undefined) this.#listeners.clear();
    else this.#listeners.delete(name);
    return this;
  }
  emit(name, ...given) {
    const listeners = this.#listeners.get(name) ?? [];
    if (!listeners.length && name === "error") throw given[0];
    for (const listener of listeners) call(listener, this, given);
    return listeners.length > 0;
  }
  listenerCount(name) {
    return (this.#listeners.get(name) ?? []).length;
  }
  listeners(name) {
    return [...(this.#listeners.get(name) ?? [])];
  }
  setMaxListeners() {
    return this;
  }
}
EventEmitter.prototype.addListener = EventEmitter.prototype.on;
EventEmitter.prototype.removeListener = EventEmitter.prototype.off;
EventEmitter.EventEmitter = EventEmitter;
EventEmitter.once = (emitter, name) => new Promise((done) => emitter.once(name, (...given) => done(given)));
export const once = EventEmitter.once;
export default EventEmitter;
