/** The program of a worker. */
export {};

// A signal to the whole group is for the main process, which says when to drain: also while all
// that a worker is made of is loaded.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
await import("./serve.ts");
