type Keys = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/** An array of tables for gateway.toml, such as `[[routes]]`. */
export function tables(name: string, all: readonly Keys[]): string {
  return all
    .map((keys) => {
      // These values have the same form in JSON and TOML.
      const lines = Object.entries(keys).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
      return `[[${name}]]\n${lines.join("\n")}\n`;
    })
    .join("");
}
