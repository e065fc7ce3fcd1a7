// `import` of packages that were provided, where no folder can be mounted above the skill: Node.js
// looks in NODE_PATH for `require` alone. Before 18.19 it has no way to add that.
const { register } = require("node:module");
const { pathToFileURL } = require("node:url");
if (register) register(pathToFileURL(`${__dirname}/.resolve.mjs`));
