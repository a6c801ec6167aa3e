// The button that copies a block takes its commands alone: no prompt, and nothing that they printed.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target]");
  const block = button && document.querySelector(button.dataset.clipboardTarget);
  const commands = block ? block.textContent.split("\n").filter((line) => line.startsWith("$ ")) : [];
  if (commands.length) button.dataset.clipboardText = commands.map((line) => line.slice(2)).join("\n");
}, true); // before the theme's own listener reads it
