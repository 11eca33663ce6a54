/** Query bodies of shapes that are hard for a parser. */

const target = '"database":"main","table":"users"';

/** Short bodies, which applications send most. */
export const shortBodies: Readonly<Record<string, string>> = {
  Select: '{"Select":{"database":"main","from":"users","columns":["*"],"limit":10,"offset":0}}',
  "Select with a condition":
    '{"Select":{"database":"main","from":"users","columns":["id","name"],"where":{"column":"age","cmp":">","value":18},"order_by":{"column":"name","direction":"ASC"},"limit":20}}',
  "Insert of one row": `{"Insert":{${target},"values":[{"id":1,"name":"Alice"}]}}`,
  "Update of one row": `{"Update":{${target},"set":{"age":31},"where":{"column":"id","cmp":"=","value":1}}}`,
};

type Piece = (index: number) => string;

/** Pieces separated by commas, with this many bytes in total. */
function fill(bytes: number, piece: Piece): string {
  const pieces: string[] = [];
  for (let length = 0; length < bytes; ) {
    const next = piece(pieces.length);
    pieces.push(next);
    length += Buffer.byteLength(next) + 1;
  }
  return pieces.join(",");
}

const insert = (rows: string) => `{"Insert":{${target},"values":[${rows}]}}`;
const select = (fields: string) => `{"Select":{"database":"main","from":"users",${fields}}}`;
const row: Piece = (id) =>
  `{"id":${id},"name":"name ${id}","email":"user${id}@example.com","age":${id % 90},"active":true}`;
const comparison: Piece = (id) => `{"column":"id","cmp":"=","value":${id}}`;
const text = (part: string, length: number) => part.repeat(Math.ceil(length / part.length));
const rowsOf = (cell: Piece) => (bytes: number) =>
  insert(fill(bytes, (id) => `{"id":${id},"c":${cell(id)}}`));
const cellOf = (element: Piece) => (bytes: number) => insert(`{"c":[${fill(bytes, element)}]}`);

/** A Batch, since the parts of one operation are bounded. */
const batchOf =
  (make: (bytes: number) => string, count = 100) =>
  (bytes: number) =>
    `{"Batch":[${Array.from({ length: count }, () => make(bytes / count)).join(",")}]}`;

/** Functions that make a body of about this many bytes, by shape. */
export const longShapes: Readonly<Record<string, (bytes: number) => string>> = {
  rows: (bytes) => insert(fill(bytes, row)),
  "rows, indented": (bytes) =>
    insert(fill(bytes, (id) => JSON.stringify(JSON.parse(row(id)), null, 2))),
  "rows of 4,000 columns at random": (bytes) =>
    insert(fill(bytes, (id) => `{"a${(id * 7919) % 2000}":1,"b${(id * 104_729) % 2000}":"x"}`)),
  "rows of 1,000 columns": (bytes) => {
    const wide = `{${Array.from({ length: 1000 }, (_, id) => `"column_${id}":${id}`).join(",")}}`;
    return insert(fill(bytes, () => wide));
  },
  "columns with escapes": (bytes) => insert(fill(bytes, () => '{"\\u0061b":1,"c\\u00e9":"x"}')),
  "empty rows": (bytes) => insert(fill(bytes, () => "{}")),
  "a text of all bytes": (bytes) => insert(`{"c":"${text("lorem ipsum dolor ", bytes)}"}`),
  "texts of 1 kB": rowsOf(() => `"${text("lorem ipsum dolor ", 1000)}"`),
  "texts of 1 kB, some accents": rowsOf(() => `"${text("lorem ipsüm dolör ", 1000)}"`),
  "texts of 1 kB, Japanese": rowsOf(() => `"${text("漢字かな交じり文", 340)}"`),
  "texts of 1 kB, line breaks": rowsOf(() => `"${text("lorem ipsum\\n dolor ", 1000)}"`),
  "texts of escapes": rowsOf(() => `"${text("\\u00e9\\n", 1000)}"`),
  numbers: rowsOf((id) => `${Math.sin(id)},"d":${id * 1.37},"e":${-id}`),
  "long numbers in a cell": cellOf((id) => String(Math.sin(id))),
  "digits in a cell": cellOf((id) => String(id % 10)),
  "words in a cell": cellOf((id) => ["true", "false", "null"][id % 3] ?? ""),
  "strings in a cell": cellOf((id) => `"s${id}"`),
  "empty objects in a cell": cellOf(() => "{}"),
  "documents in cells": rowsOf((id) => `{"a":{"b":[1,2,{"c":"x${id}"}]},"d":"y"}`),
  "cells 60 deep": rowsOf(() => "[".repeat(60) + "]".repeat(60)),
  "white space": rowsOf(() => `${" ".repeat(200)}1`),
  conditions: batchOf((bytes) =>
    select(`"columns":["*"],"where":{"or":[${fill(bytes, comparison)}]}`),
  ),
  "nested conditions": batchOf((bytes) =>
    select(
      `"columns":["*"],"where":{"and":[${fill(bytes, (id) => `{"not":{"not":${comparison(id)}}}`)}]}`,
    ),
  ),
  "an IN list": (bytes) =>
    select(`"columns":["*"],"where":{"column":"id","cmp":"IN","value":[${fill(bytes, String)}]}`),
  "columns of a Select": batchOf((bytes) =>
    select(`"columns":[${fill(bytes, (id) => `"c${id}"`)}]`),
  ),
  "columns of a CreateTable": batchOf(
    (bytes) =>
      `{"CreateTable":{${target},"columns":[${fill(bytes, (id) => `{"name":"c${id}","type":"int"}`)}]}}`,
  ),
  "a Batch of 1,000": batchOf((bytes) => insert(fill(bytes, row)), 1000),
};
