import { type Broken, key } from "./file.ts";

const isSecret = "a value that is not shown, as it is a secret";

/** What `[store]` refuses. */
export const store: Broken[] = [
  ...['""', "1", '"mysql://gatehouse@db/gatehouse"', '"postgres:"', '"http://db:5432"'].map(
    (url) => ({
      text: `[store]\nurl = ${url}\n`,
      problem: `gateway.toml:2: store.url: found ${isSecret}; allowed: postgres://user@host:port/database`,
    }),
  ),
  ...key("store", "key_file", "a path", ['""', "1"]),
  ...key("store", "access", '"store", "file"', ['"both"', "true"]),
  ...key("store", "max_staleness", "a whole number from 2 to 3600", ["1", "3601", "2.5", '"10"']),
];
