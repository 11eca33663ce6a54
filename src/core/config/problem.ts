export interface Problem {
  readonly source: string | undefined;
  readonly line?: number | undefined;
  /** The full key, such as `server.port`; undefined for a problem of the whole file. */
  readonly key?: string | undefined;
  readonly reason: string;
}

export class ConfigurationError extends Error {
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[], options?: ErrorOptions) {
    super(problems.map(renderProblem).join("\n"), options);
    this.name = "ConfigurationError";
    this.problems = problems;
  }
}

function renderProblem({ source, line, key, reason }: Problem): string {
  const place = line === undefined ? source : `${source}:${line}`;
  return [place, key, reason].filter((part) => part !== undefined).join(": ");
}
