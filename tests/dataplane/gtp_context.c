/* Gives a GTP device of the kernel a tunnel, as no program of the system does. */
#include <arpa/inet.h>
#include <linux/genetlink.h>
#include <linux/gtp.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct message {
	struct nlmsghdr header;
	struct genlmsghdr command;
	char attributes[512];
};

static void begin(struct message *message, uint16_t family, uint8_t command)
{
	memset(message, 0, sizeof(*message));
	message->header.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	message->header.nlmsg_type = family;
	message->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	message->command.cmd = command;
}

static void add(struct message *message, uint16_t kind, const void *value, uint16_t length)
{
	struct nlattr *attribute = (void *)((char *)message + NLMSG_ALIGN(message->header.nlmsg_len));

	attribute->nla_type = kind;
	attribute->nla_len = NLA_HDRLEN + length;
	memcpy((char *)attribute + NLA_HDRLEN, value, length);
	message->header.nlmsg_len = NLMSG_ALIGN(message->header.nlmsg_len) + NLA_ALIGN(attribute->nla_len);
}

/* Sends a message and takes what comes first, which is an error only if its number says so. */
static void ask(int kernel, const struct message *asked, struct message *answer)
{
	if (send(kernel, asked, asked->header.nlmsg_len, 0) < 0 || recv(kernel, answer, sizeof(*answer), 0) < 0) {
		perror("netlink");
		exit(1);
	}
	const struct nlmsgerr *error = (void *)&answer->command;
	if (answer->header.nlmsg_type == NLMSG_ERROR && error->error != 0) {
		fprintf(stderr, "netlink: %s\n", strerror(-error->error));
		exit(1);
	}
}

static uint16_t family_of(const struct message *answer)
{
	const struct nlattr *attribute = (const void *)answer->attributes;

	while (attribute->nla_type != CTRL_ATTR_FAMILY_ID)
		attribute = (const void *)((const char *)attribute + NLA_ALIGN(attribute->nla_len));
	return *(const uint16_t *)(attribute + 1);
}

int main(int count, char **words)
{
	if (count != 6) {
		fprintf(stderr, "gtp_context DEVICE TEID_IN TEID_OUT PEER SUBSCRIBER\n");
		return 1;
	}
	int kernel = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	struct message asked, answer;
	uint32_t link = if_nametoindex(words[1]), version = GTP_V1, in = atoi(words[2]), out = atoi(words[3]);
	in_addr_t peer = inet_addr(words[4]), subscriber = inet_addr(words[5]);

	begin(&asked, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
	asked.header.nlmsg_flags = NLM_F_REQUEST;
	add(&asked, CTRL_ATTR_FAMILY_NAME, "gtp", sizeof("gtp"));
	ask(kernel, &asked, &answer);
	begin(&asked, family_of(&answer), GTP_CMD_NEWPDP);
	add(&asked, GTPA_LINK, &link, sizeof(link));
	add(&asked, GTPA_VERSION, &version, sizeof(version));
	add(&asked, GTPA_PEER_ADDRESS, &peer, sizeof(peer));
	add(&asked, GTPA_MS_ADDRESS, &subscriber, sizeof(subscriber));
	add(&asked, GTPA_I_TEI, &in, sizeof(in));
	add(&asked, GTPA_O_TEI, &out, sizeof(out));
	ask(kernel, &asked, &answer);
	close(kernel);
	return 0;
}
