#!/usr/bin/env node
// Written for any Node, however old, so that an old one can say what is wrong.
const needed = 24;

/**
 * Keeps the signals that come while the sources are loaded, for the first who listens. A gateway must
 * not end by a reload that is asked for early, nor its engine by what is meant for the gateway.
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

/**
 * Keeps memory small while the sources are loaded, of which most stay: the young generation does not grow, and the old one
 * is not marked beside, which lets both grow meanwhile. `src/memory-at-start.ts` ends that.
 */
function keepMemorySmall(setFlags) {
  setFlags("--semi-space-growth-factor=1");
  setFlags("--no-incremental-marking");
}

/** Leaves zod's messages in sixty other languages out of what is loaded. */
function loadEnglishAlone(registerHooks) {
  registerHooks({
    resolve(specifier, context, next) {
      const isAll =
        specifier === "../locales/index.js" && context.parentURL.includes("/node_modules/zod/");
      return next(isAll ? "../locales/en.js" : specifier, context);
    },
  });
}

if (Number(process.versions.node.split(".")[0]) < needed) {
  process.stderr.write(
    `gatehouse needs Node ${needed} or newer, but this is ${process.version}; ` +
      "in a clone run npm ci first, then npm start or ./gatehouse\n",
  );
  process.exitCode = 1;
} else {
  const isGateway = process.argv[2] === "serve";
  if (isGateway || process.send) keepEarlySignals();
  Promise.all([
    import("node:fs"),
    import("node:module"),
    import("node:v8"),
    import("./compile-cache.js"),
  ]).then(
    ([{ existsSync }, { registerHooks }, { setFlagsFromString }, { keepCompiledModules }]) => {
      // Else V8 takes what many waiting requests hold for long-lived, and makes it where it is collected last, along
      // with all that it points to. Set before modules are looked up that were compiled under other flags.
      setFlagsFromString("--no-allocation-site-pretenuring");
      if (isGateway) keepMemorySmall(setFlagsFromString);
      keepCompiledModules();
      loadEnglishAlone(registerHooks);
      // A clone runs its sources; the published package carries them compiled.
      const sources = new URL("../src/cli.ts", import.meta.url);
      return import(
        existsSync(sources) ? sources.href : new URL("../dist/cli.js", import.meta.url).href
      );
    },
  );
}
