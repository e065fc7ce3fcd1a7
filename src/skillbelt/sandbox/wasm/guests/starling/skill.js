// A built skill: its source is the program.
import { settled } from "./engine.js";
import { argv } from "../js/place.js";
import { process } from "../js/process.js";
import { program } from "../js/program.js";

const made = program(() => {
  process.arrive(["node", ...argv()]);
  // Not before: what stands in the source is to happen in a run, not while building.
  return import("skill:main");
});

export const run = {
  async run() {
    made.start();
    do await settled();
    while (made.turn());
    made.run.run();
  },
};
