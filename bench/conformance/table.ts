import type { Check, Results } from "./suite.ts";

/** Checks of a scenario that count, and how many of them hold. */
function score(checks: readonly Check[] | undefined): string {
  if (checks === undefined) return "-";
  const counted = checks.filter(({ status }) => status === "SUCCESS" || status === "FAILURE");
  const good = counted.filter(({ status }) => status === "SUCCESS").length;
  return `${good}/${counted.length}`;
}

/** The checks that hold in `before` and not in `after`, each named once. */
export function lost(
  before: readonly Check[] = [],
  after: readonly Check[] = [],
): readonly string[] {
  const holds = (checks: readonly Check[], id: string) =>
    checks.filter((check) => check.id === id && check.status === "SUCCESS").length;
  const ids = new Set(before.map(({ id }) => id));
  return [...ids].filter((id) => holds(after, id) < holds(before, id));
}

/** What a column of the table is: whose results, under which name. */
export interface Column {
  readonly title: string;
  readonly results: Results;
}

/** The columns side by side, scenario by scenario, as a table of Markdown. */
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
