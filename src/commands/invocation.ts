const runsFromSources = import.meta.url.endsWith(".ts");

/**
 * How this command is called, for help and hints: in a clone, which runs its sources, npm has to
 * find it; where it is installed, it is on the path.
 */
export const invocation = runsFromSources ? "npx gatehouse" : "gatehouse";
