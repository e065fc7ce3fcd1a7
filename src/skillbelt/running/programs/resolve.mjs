// What is not found where Node.js looks is looked for among the packages that were provided.
import { pathToFileURL } from "node:url";

const parents = (process.env.NODE_PATH ?? "")
  .split(":")
  .filter(Boolean)
  .map((folder) => pathToFileURL(`${folder}/../importer.mjs`).href);

export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context);
  } catch (error) {
    const isPackage = /^(?:@[^/]+\/)?[^./@#][^:]*$/.test(specifier);
    if (error?.code === "ERR_MODULE_NOT_FOUND" && isPackage) {
      for (const parentURL of parents) {
        try {
          return await next(specifier, { ...context, parentURL });
        } catch (again) {
          if (again?.code !== "ERR_MODULE_NOT_FOUND") throw again;
        }
      }
    }
    throw error;
  }
}
