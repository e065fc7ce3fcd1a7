// The three standard streams, byte for byte.
import stdin from "wasi:cli/stdin@0.2.0";
import stdout from "wasi:cli/stdout@0.2.0";
import stderr from "wasi:cli/stderr@0.2.0";
import { Buffer } from "./bytes.js";

const MOST = 4096; // of one blocking write
const opened = {};

function stream(number) {
  return (opened[number] ??= number === 1 ? stdout.getStdout() : stderr.getStderr());
}

export function write(number, bytes) {
  const target = stream(number);
  for (let at = 0; at < bytes.length; at += MOST) {
    try {
      target.blockingWriteAndFlush(bytes.subarray(at, at + MOST));
    } catch {
      return false; // nobody reads it any more
    }
  }
  return true;
}

// Some bytes of standard input; null at its end.
export function readSome(most = 65536) {
  opened.input ??= stdin.getStdin();
  for (;;) {
    try {
      const bytes = opened.input.blockingRead(most);
      if (bytes.length) return bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
    } catch {
      return null;
    }
  }
}

export function readAll() {
  const pieces = [];
  for (let piece = readSome(); piece; piece = readSome()) pieces.push(piece);
  return Buffer.concat(pieces);
}
