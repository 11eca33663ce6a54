/** A path of SQL/JSON, as SQLite, MySQL and MariaDB read it. Names hold no quotes or backslashes. */
export function jsonPath(path: readonly (string | number)[]): string {
  const steps = path.map((step) => (typeof step === "number" ? `[${step}]` : `."${step}"`));
  return `$${steps.join("")}`;
}
