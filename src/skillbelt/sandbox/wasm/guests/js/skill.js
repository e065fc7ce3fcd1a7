// A built skill: its source is the program.
import { argv } from "./place.js";
import { process } from "./process.js";
import { program } from "./program.js";

const made = program(() => {
  process.arrive(["node", ...argv()]);
  // Not before: what stands in the source is to happen in a run, not while building.
  return import("skill:main");
});
export const { start, turn, pump, run } = made;
