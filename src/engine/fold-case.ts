/** Text with the case of its ASCII letters folded, and of no others. */
export function foldCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
