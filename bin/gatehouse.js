#!/usr/bin/env node
// Written for any Node, however old, so that an old one can say what is wrong.
const [major, minor] = process.versions.node.split(".").map(Number);
// Others ignore options of SQLite's driver, such as the limit of a value's length.
const isKnown = major === 24 ? minor >= 15 : major >= 26;

/**
 * Keeps the signals that come while the sources are loaded, for the first who listens. A gateway must
 * not end by a reload that is asked for early, nor its SQLite process by what is meant for the gateway.
 */
function keepEarlySignals() {
  for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) {
    let came = false;
    process.on(signal, () => {
      came = true;
    });
    process.on("newListener", function hand(event) {
      if (event !== signal) return;
      process.off("newListener", hand);
      if (came) setImmediate(() => process.emit(signal, signal));
    });
  }
}

if (!isKnown) {
  process.stderr.write(
    `gatehouse needs Node 24.15, or 26 or newer, but this is ${process.version}; ` +
      "in a clone run npm ci first, then npm start or ./gatehouse\n",
  );
  process.exitCode = 1;
} else {
  if (process.argv[2] === "serve" || process.send) keepEarlySignals();
  Promise.all([import("node:fs"), import("node:v8"), import("./compile-cache.js")]).then(
    ([{ existsSync }, { setFlagsFromString }, { keepCompiledModules }]) => {
      // Else V8 takes what many waiting requests hold for long-lived, and makes it where it is collected last, along
      // with all that it points to. Set before modules are looked up that were compiled under other flags.
      setFlagsFromString("--no-allocation-site-pretenuring");
      keepCompiledModules();
      // A clone runs its sources; the published package carries them compiled.
      const sources = new URL("../src/cli/cli.ts", import.meta.url);
      return import(
        existsSync(sources) ? sources.href : new URL("../dist/cli/cli.js", import.meta.url).href
      );
    },
  );
}
