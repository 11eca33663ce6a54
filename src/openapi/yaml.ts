/** JSON values as YAML 1.2, which has every JSON string and number as it is. */

function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A key that no reader of YAML takes for anything but a string. */
function key(name: string): string {
  return /^(?!(?:y|n|yes|no|on|off|true|false|null)$)[A-Za-z][A-Za-z0-9_]*$/i.test(name)
    ? name
    : JSON.stringify(name);
}

function isScalar(value: unknown): boolean {
  return typeof value !== "object" || value === null;
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}

/** A collection's lines; undefined for what stands on one line. */
function lines(value: unknown): string[] | undefined {
  if (Array.isArray(value)) return value.every(isScalar) ? undefined : value.flatMap(element);
  if (!isPlain(value) || isEmpty(value)) return undefined;
  return Object.entries(value).flatMap(([name, member]) => {
    const inner = lines(member);
    return inner === undefined
      ? [`${key(name)}: ${JSON.stringify(member)}`]
      : [`${key(name)}:`, ...inner.map((line) => `  ${line}`)];
  });
}

function element(value: unknown): string[] {
  const [first, ...rest] = lines(value) ?? [JSON.stringify(value)];
  return [`- ${first}`, ...rest.map((line) => `  ${line}`)];
}

/** The text of a document. */
export function toYaml(value: unknown): string {
  return `${(lines(value) ?? [JSON.stringify(value)]).join("\n")}\n`;
}
