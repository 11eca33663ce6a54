#!/usr/bin/env node
// Written for any Node, however old, so that an old one can say what is wrong.
const needed = 24;
if (Number(process.versions.node.split(".")[0]) < needed) {
  process.stderr.write(
    `gatehouse needs Node ${needed} or newer, but this is ${process.version}; ` +
      "in a clone run npm ci first, then npm start or ./gatehouse\n",
  );
  process.exitCode = 1;
} else {
  Promise.all([import("node:fs"), import("./compile-cache.js")]).then(
    ([{ existsSync }, { keepCompiledModules }]) => {
      keepCompiledModules();
      // A clone runs its sources; the published package carries them compiled.
      const sources = new URL("../src/cli.ts", import.meta.url);
      return import(
        existsSync(sources) ? sources.href : new URL("../dist/cli.js", import.meta.url).href
      );
    },
  );
}
