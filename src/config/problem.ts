/** What is wrong with a configuration, and where. */
export interface Problem {
  /** The file, or the command line's option, that the value came from. */
  readonly source: string | undefined;
  /** From 1; undefined if the problem is not one of a line. */
  readonly line?: number | undefined;
  /** The full key, such as `server.port`; undefined if the problem is one of the whole file. */
  readonly key?: string | undefined;
  /** What was found and what is allowed, or why the file cannot be used. */
  readonly reason: string;
}

/** Thrown if a configuration cannot be used; its message has a line for every problem found. */
export class ConfigurationError extends Error {
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[]) {
    super(problems.map(renderProblem).join("\n"));
    this.name = "ConfigurationError";
    this.problems = problems;
  }
}

/** A problem on one line: `FILE:LINE: KEY: REASON`, without the parts that it does not have. */
function renderProblem({ source, line, key, reason }: Problem): string {
  const place = line === undefined ? source : `${source}:${line}`;
  return [place, key, reason].filter((part) => part !== undefined).join(": ");
}
