// Where the program is: its arguments, its variables, its current folder.
import environment from "wasi:cli/environment@0.2.0";

const state = { folder: "/", argv: [], env: {} };

export function arrive() {
  state.env = Object.fromEntries(environment.getEnvironment());
  state.argv = environment.getArguments();
  state.folder = state.env.PWD?.startsWith("/") ? state.env.PWD : "/";
}

export const cwd = () => state.folder;
export const argv = () => state.argv;
export const env = () => state.env;
export function move(folder) {
  state.folder = folder;
}
