/** What Node loads before a program: an SDK for traces, for instance. */
const preload = /^(?:--import|--require|-r)(?<value>=.*)?$/s;

/**
 * Those of a process's flags by which Node loads modules before its program. Its other flags, such
 * as a debugger's port, are for it alone.
 *
 * @param flags as `process.execArgv` has them
 */
export function preloads(flags: readonly string[]): string[] {
  const kept: string[] = [];
  for (const [at, flag] of flags.entries()) {
    const match = preload.exec(flag);
    if (match === null) continue;
    kept.push(flag);
    const next = flags[at + 1];
    if (match.groups?.value === undefined && next !== undefined) kept.push(next);
  }
  return kept;
}
