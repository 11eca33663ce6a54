type Keys = Readonly<Record<string, string | readonly string[]>>;

/** Tables of one name, such as `[[routes]]`, as gateway.toml has them. */
export function tables(name: string, all: readonly Keys[]): string {
  return all
    .map((keys) => {
      // Texts and lists of them are written in JSON as they are in TOML.
      const lines = Object.entries(keys).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
      return `[[${name}]]\n${lines.join("\n")}\n`;
    })
    .join("");
}
