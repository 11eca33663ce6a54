import type { Check, Results } from "./suite.ts";

function score(checks: readonly Check[] | undefined): string {
  if (checks === undefined) return "-";
  const counted = checks.filter(({ status }) => status === "SUCCESS" || status === "FAILURE");
  const good = counted.filter(({ status }) => status === "SUCCESS").length;
  return `${good}/${counted.length}`;
}

/** The names of checks that pass in `before` but not in `after`. */
export function lost(
  before: readonly Check[] = [],
  after: readonly Check[] = [],
): readonly string[] {
  const holds = (checks: readonly Check[], id: string) =>
    checks.filter((check) => check.id === id && check.status === "SUCCESS").length;
  const ids = new Set(before.map(({ id }) => id));
  return [...ids].filter((id) => holds(after, id) < holds(before, id));
}

interface Column {
  readonly title: string;
  readonly results: Results;
}

export function markdownTable(columns: readonly Column[]): string {
  const scenarios = new Set(columns.flatMap(({ results }) => [...results.keys()]));
  const rows = [
    ["scenario", ...columns.map(({ title }) => title)],
    ["---", ...columns.map(() => "---")],
    ...[...scenarios]
      .toSorted()
      .map((scenario) => [
        `\`${scenario}\``,
        ...columns.map(({ results }) => score(results.get(scenario))),
      ]),
  ];
  return rows.map((row) => `| ${row.join(" | ")} |`).join("\n");
}
