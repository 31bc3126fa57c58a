-- A namespace's counts are read by the primary key as it is. Places where nothing has been for long need not be walked.
delete from counts where count = 0;
