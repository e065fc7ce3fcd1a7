// How StarlingMonkey differs from QuickJS where a program is built.
import { mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const PACKAGE = "@bytecodealliance/componentize-js/src/componentize.js";
const UNUSED = ["random", "http", "fetch-event"]; // of the engine; ours go through the world

// The functions of the world are imported as the other engine has them.
export const plugins = [
  {
    name: "starling",
    setup(build) {
      build.onResolve({ filter: /^(?:wasi|skillbelt):/ }, ({ path, importer, namespace }) =>
        namespace === "world" || importer === join(here, "world.js") ? { path, external: true } : { path, namespace: "world" },
      );
      build.onLoad({ filter: /.*/, namespace: "world" }, ({ path }) => ({
        contents: `import * as given from ${JSON.stringify(path)};\nimport { adapted } from "./world.js";\nexport default adapted(given, ${JSON.stringify(path)});\n`,
        resolveDir: here,
      }));
    },
  },
];

export async function componentize({ witPath, world, jsSource }, task) {
  const made = await import(pathToFileURL(join(task.engine, "node_modules", PACKAGE)));
  const folder = join(tmpdir(), "source");
  mkdirSync(folder, { recursive: true });
  process.chdir(folder); // so that the source is called by its name alone
  writeFileSync("skill.js", jsSource);
  Math.random = () => 0.5; // it names a folder whose path stays in the component
  return made.componentize({ sourcePath: join(folder, "skill.js"), sourceName: "skill.js", witPath, worldName: world, disableFeatures: UNUSED });
}
